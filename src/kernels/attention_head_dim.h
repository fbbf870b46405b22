// The largest head_dim supported on a GPU.
#pragma once

#include <cstdint>

namespace shiftron {

inline constexpr int64_t kMostHeadDimOnCuda = 256;  // elements that the lanes of a warp hold

}  // namespace shiftron
