// Scratch that the fast CPU bodies ask for; it depends on shapes and stream.cpu.threads alone.
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

Shape attention_scratch(const Stream& stream, ConstTensor q, ConstTensor k, AttentionShape shape) {
  const fast::AttentionTiles tiles(q.extent(0), q.extent(1) / k.extent(1), q.extent(2));
  const int64_t threads = std::max(1, stream.cpu.threads);
  if (q.dtype() != DType::bfloat16) return {threads * tiles.thread_floats()};
  // As many threads at most work by whole heads, whose sums are the longest.
  const int64_t heads = q.extent(0) / std::max<int64_t>(1, shape.sequence_length) * k.extent(1);
  const int64_t words = std::max(tiles.thread_floats(), tiles.thread_words());
  return {std::max(std::min(threads, heads) * (words + tiles.key_sums(shape.sequence_length)),
                   threads * (words + tiles.key_sums(fast::AttentionTiles::kKeys)))};
}

}  // namespace shiftron
