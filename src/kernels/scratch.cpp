// Scratch that the fast CPU bodies ask for; it depends on shapes and stream.threads alone.
#include "kernels/attention_tiles.h"
#include "kernels/kernels.h"
#include "kernels/row_blocks.h"

namespace shiftron {

Shape rms_norm_scratch(int64_t rows, int64_t hidden) {
  return {std::max<int64_t>(1, fast::row_blocks(rows, fast::kNormRows)), hidden};
}

Shape shift_rope_scratch(int64_t rows, int64_t heads, int64_t, int64_t taps) {
  return {std::max<int64_t>(1, fast::row_blocks(rows, fast::kShiftRows)), heads, std::max<int64_t>(1, taps)};
}

Shape attention_scratch(const Stream& stream, int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const fast::AttentionTiles tiles(rows, heads / kv_heads, head_dim);
  // d_k and d_v are summed in whole blocks of keys.
  const int64_t blocks = (rows + fast::AttentionTiles::kPairedKeys - 1) / fast::AttentionTiles::kPairedKeys;
  return {std::max(1, stream.threads) * std::max(tiles.thread_floats(), tiles.thread_words()) +
          2 * blocks * fast::AttentionTiles::kPairedKeys * kv_heads * head_dim};
}

}  // namespace shiftron
