// Scratch that the bodies ask for; the specification needs a row of hidden or two of head_dim.
#include "kernels/kernels.h"

namespace shiftron {

// A partial d_w for each block of 64 rows.
Shape rms_norm_scratch(int64_t rows, int64_t hidden) {
  return {(rows + 63) / 64, hidden};
}

// Partial d_taps for each block of 64 rows.
Shape shift_rope_scratch(int64_t rows, int64_t heads, int64_t, int64_t taps) {
  return {(rows + 63) / 64, heads, taps};
}

// d_k and d_v before they are rounded.
Shape attention_scratch(const Stream&, int64_t rows, int64_t, int64_t kv_heads, int64_t head_dim) {
  return {2, rows, kv_heads, head_dim};
}

}  // namespace shiftron
