// Which neighbours a byte-pair model joins, and in which order.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace shiftron {

// A hash table with open addressing.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = UINT32_MAX;  // lower ones are joined first; UINT32_MAX: never
    int32_t id = -1;             // of what they become
  };

  explicit MergeTable(size_t most)
      : slots_(std::bit_ceil(most + most / 2 + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

  // A later merge of the same pair replaces the earlier one.
  void set(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t at = first(key);
    while (slots_[at].merge.id >= 0 && slots_[at].key != key) at = next(at);
    slots_[at] = {key, merge};
  }
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    size_t at = first(key);
    while (slots_[at].merge.id >= 0) {
      if (slots_[at].key == key) return slots_[at].merge;
      at = next(at);
    }
    return {};
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t first(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ULL) >> shift_; }
  size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace shiftron
