// ControlPlane: what the ranks of a group tell each other on the host: text, agreement, barriers. Nothing here is
// on a stream, and nothing counts as traffic.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shiftron {

// Ranks that were put together, and this one's place among them.
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

// Every rank of the group makes the same calls in the same order. On meta every rank says what this one says.
class ControlPlane : public virtual RankGroup {
 public:
  virtual void barrier() = 0;
  virtual std::string broadcast_text(const std::string& text, int root) = 0;  // of any length
  virtual std::vector<std::string> gather_text(const std::string& text, int root) = 0;  // empty on ranks but root
};

}  // namespace shiftron
