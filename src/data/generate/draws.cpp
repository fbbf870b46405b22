// Integers from Philox words by multiplication: Lemire, "Fast random integer generation in an interval" (2019).
#include "data/generate/draws.h"

#include <numeric>
#include <utility>

namespace shiftron {

uint32_t Draws::word() {
  if (used_ % 4 == 0) block_ = philox_.block(used_ / 4, number_);
  return block_[used_++ % 4];
}

uint32_t Draws::below(uint32_t m) {
  const uint32_t uneven = (0 - m) % m;  // 2^32 mod m
  while (true) {
    const uint64_t product = uint64_t{word()} * m;
    if (static_cast<uint32_t>(product) >= uneven) return static_cast<uint32_t>(product >> 32);
  }
}

void Draws::shuffle(std::vector<int32_t>& items, size_t count) {
  for (size_t i = 0; i < count; ++i) std::swap(items[i], items[i + below(static_cast<uint32_t>(items.size() - i))]);
}

std::vector<int32_t> Draws::choose(int32_t of, int32_t count) {
  std::vector<int32_t> items(static_cast<size_t>(of));
  std::iota(items.begin(), items.end(), 0);
  shuffle(items, static_cast<size_t>(count));
  items.resize(static_cast<size_t>(count));
  return items;
}

}  // namespace shiftron
