// Rows per partial sum of the fast CPU bodies: constant, so that results do not depend on the thread count.
#pragma once

#include <cstdint>

namespace shiftron::fast {

inline constexpr int64_t kNormRows = 64;
inline constexpr int64_t kShiftRows = 32;

inline int64_t row_blocks(int64_t rows, int64_t block) {
  return (rows + block - 1) / block;
}

}  // namespace shiftron::fast
