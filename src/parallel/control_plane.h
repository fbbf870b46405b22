// ControlPlane: texts and barriers between the ranks of a group, on the host. Nothing here runs on a stream or counts
// as traffic.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shiftron {

// A group of ranks, and this one's place in it.
class RankGroup {
 public:
  RankGroup(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  virtual ~RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  const std::string& name() const { return name_; }  // "world", or the axis: "tp", "dp", "pp", "kv_replica", "tied"
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  std::string name_;
  int rank_;
  int size_;
};

// Every rank of the group makes the same calls in the same order. On meta every rank is taken to send this one's text.
class ControlPlane : public virtual RankGroup {
 public:
  virtual void barrier() = 0;
  virtual std::string broadcast_text(const std::string& text, int root) = 0;  // of any length
  virtual std::vector<std::string> gather_text(const std::string& text, int root) = 0;  // empty except on root
};

}  // namespace shiftron
