// Whether there is memory, before it is used.
#pragma once

#include <cstdint>

namespace shiftron {

// Whether the system would give this process so many bytes of the host now, under its limits; none are touched.
bool has_memory(int64_t bytes);

}  // namespace shiftron
