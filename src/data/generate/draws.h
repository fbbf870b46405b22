// Draws: the random numbers of one generated document, a function of (seed, stream, number). docs/generated-data.md
// defines them so that another program can draw the same.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/philox.h"

namespace shiftron {

class Draws {
 public:
  Draws(uint64_t seed, std::string_view stream, uint64_t number) : philox_(seed, stream), number_(number) {}

  // Uniform over 0 … m − 1; m ≥ 1. Takes one word, and another one in fewer than m of 2^32 cases.
  uint32_t below(uint32_t m);
  // The first `count` items of a shuffle of 0 … of − 1; count ≤ of.
  std::vector<int32_t> choose(int32_t of, int32_t count);
  // Swaps item i with one drawn from itself and those after it, for i = 0, 1, … `count` − 1.
  void shuffle(std::vector<int32_t>& items, size_t count);

 private:
  uint32_t word();
  Philox philox_;
  uint64_t number_;
  uint64_t used_ = 0;  // words
  std::array<uint32_t, 4> block_{};
};

}  // namespace shiftron
