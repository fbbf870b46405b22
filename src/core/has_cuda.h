// Whether this build has the CUDA sources, so that their functions may be called. Include this only where the answer
// matters: all other files compile to the same in both kinds of build.
#pragma once

namespace shiftron {

#ifdef SHIFTRON_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

}  // namespace shiftron
