// A loop that states its ranges to ThreadSanitizer instead of being instrumented, as kernels do.
#pragma once

#include <cstdint>
#include <span>

namespace shiftron {

// out = keep · out + factor · in
void stated_multiply_add(std::span<int64_t> out, std::span<const int64_t> in, int64_t factor, int64_t keep);

}  // namespace shiftron
