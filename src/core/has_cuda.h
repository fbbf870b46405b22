// Whether this program has CUDA's sources: then what they define may be called. Only who asks includes this: all other files
// are the same in both kinds of build.
#pragma once

namespace shiftron {

#ifdef SHIFTRON_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

}  // namespace shiftron
