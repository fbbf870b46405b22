// BadLines: lines of JSONL that hold no document.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shiftron {

// For one thread.
class BadLines {
 public:
  // Up to `most` lines may be left out. `count` and `first`: those that were left out before.
  explicit BadLines(uint64_t most = 0, uint64_t count = 0, std::vector<std::string> first = {})
      : most_(most), count_(count), first_(std::move(first)) {}

  // fault: the message about a line, which begins with its file and number. bytes_read: of all inputs so far.
  void add(const std::string& fault, uint64_t bytes_read);

  uint64_t count() const { return count_; }
  const std::vector<std::string>& first() const { return first_; }  // faults
  bool too_many() const { return count_ > most_; }
  // Whether there are too many and so much has been read since then that counting the rest would take too long.
  bool is_enough(uint64_t bytes_read) const;
  // Throws Error(bad_input) with the first faults and the number of all if there are too many. `is_all`: the inputs
  // were read to their end.
  void check(bool is_all) const;

 private:
  uint64_t most_;
  uint64_t count_;
  uint64_t excess_at_ = 0;  // bytes read when they became too many
  std::vector<std::string> first_;
};

}  // namespace shiftron
