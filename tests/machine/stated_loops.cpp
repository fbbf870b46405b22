// Not instrumented.
#include "machine/stated_loops.h"

#include "core/sanitizer.h"

namespace shiftron {

void stated_multiply_add(std::span<int64_t> out, std::span<const int64_t> in, int64_t factor, int64_t keep) {
  sanitizer::state_read(in.data(), in.size_bytes());
  sanitizer::state_write(out.data(), out.size_bytes());
  for (size_t i = 0; i < out.size(); ++i) out[i] = keep * out[i] + factor * in[i];
}

}  // namespace shiftron
