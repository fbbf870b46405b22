// Counter-based random numbers: the value is a function of (seed, stream name, index); there is no generator state.
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shiftron {

class Philox {
 public:
  // Streams with different names are independent for the same seed.
  Philox(uint64_t seed, std::string_view stream);
  std::array<uint32_t, 4> block(uint64_t counter, uint64_t high = 0) const;
  double uniform(uint64_t index) const;  // in (0, 1), 53 bits
  double normal(uint64_t index) const;   // mean 0, variance 1 (Box-Muller; elements 2i and 2i + 1 share a block)

 private:
  uint32_t key_[2];
  uint32_t stream_[2];
};

}  // namespace shiftron
