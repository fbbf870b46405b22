// Scratch for the backend that a plan is for. On the CPU it depends only on shapes and stream.cpu.threads.
#include "kernels/scratch.h"

#include "kernels/attention_tiles.h"
#include "kernels/matrix.h"
#include "kernels/matrix_product.h"
#include "kernels/row_blocks.h"
#include "kernels/weight_gradient.h"

namespace shiftron {
namespace {

// Logits are kept in chunks of rows, with enough rows for large products. Within a chunk one block of the vocabulary is
// processed at a time: it and its part of the head stay in the last-level cache between operations.
constexpr int64_t kLossChunkRows = 1024;
constexpr int64_t kLossChunkBytes = 64 << 20;
constexpr int64_t kLossBlockBytes = 8 << 20;

bool is_cuda(const Stream& stream) {
  return stream.backend() == DeviceKind::cuda;
}

}  // namespace

LossTiles loss_tiles(const Stream& stream, int64_t rows, int64_t vocab, DType dtype) {
  if (is_cuda(stream)) return cuda::loss_tiles(rows);
  const int64_t row_bytes = vocab * size_of(dtype);
  const int64_t fitting = std::max<int64_t>(1, kLossChunkBytes / row_bytes);
  const int64_t chunk = std::max<int64_t>(1, std::min({rows, kLossChunkRows, fitting}));
  return {
      .rows = chunk,
      .blocks = static_cast<int>(std::max<int64_t>(1, (chunk * row_bytes + kLossBlockBytes - 1) / kLossBlockBytes))};
}

int64_t library_workspace(const Stream& stream) {
  return is_cuda(stream) ? cuda::library_workspace() : 0;
}

Shape sum_of_squares_scratch(const Stream& stream, const std::vector<Squares>& squares) {
  return is_cuda(stream) ? cuda::sum_of_squares_scratch(squares) : Shape{0};
}

Shape sum_columns_scratch(const Stream& stream, int64_t rows, int64_t columns) {
  return is_cuda(stream) ? cuda::sum_columns_scratch(rows, columns) : Shape{0, columns};
}

Shape rms_norm_scratch(const Stream& stream, int64_t rows, int64_t hidden) {
  if (is_cuda(stream)) return cuda::rms_norm_scratch(rows, hidden);
  return {std::max<int64_t>(1, fast::row_blocks(rows, fast::kNormRows)), hidden};
}

Shape shift_rope_scratch(const Stream& stream, int64_t rows, int64_t heads, int64_t, int64_t taps) {
  if (is_cuda(stream)) return cuda::shift_rope_scratch(rows, heads, taps);
  return {std::max<int64_t>(1, fast::row_blocks(rows, fast::kShiftRows)), heads, std::max<int64_t>(1, taps)};
}

// On a CPU for one stream at a time, on a GPU for all of them.
Shape shift_rope_scratch(const Stream& stream, const std::vector<ShiftBackward>& streams) {
  int64_t most = 0, sum = 0;
  for (const ShiftBackward& each : streams) {
    if (!each.how.taps.defined()) continue;
    const int64_t own =
        shift_rope_scratch(stream, each.x.extent(0), each.x.extent(1), each.x.extent(2), each.how.taps.extent(1))
            .count();
    most = std::max(most, own);
    sum += own;
  }
  return {is_cuda(stream) ? sum : most};
}

Shape attention_scratch(const Stream& stream, ConstTensor q, ConstTensor k, AttentionShape shape) {
  if (is_cuda(stream)) {
    const int64_t length = std::max<int64_t>(1, shape.sequence_length);
    return cuda::attention_scratch({.samples = q.extent(0) / length,
                                    .length = length,
                                    .heads = q.extent(1),
                                    .kv_heads = k.extent(1),
                                    .head_dim = q.extent(2),
                                    .documents = shape.documents,
                                    .deterministic = stream.deterministic},
                                   q.dtype());
  }
  const auto tiles = [&](int64_t most_rows) {
    return fast::AttentionTiles(q.extent(0), q.extent(1) / k.extent(1), q.extent(2), most_rows);
  };
  const int64_t threads = std::max(1, stream.cpu.threads);
  // At most this many threads work on whole heads, whose sums are the longest.
  const int64_t heads = q.extent(0) / std::max<int64_t>(1, shape.sequence_length) * k.extent(1);
  const fast::AttentionTiles floats = tiles(fast::AttentionTiles::kRows);
  int64_t words = floats.thread_floats();
  if (q.dtype() == DType::bfloat16) words = std::max(words, tiles(fast::AttentionTiles::kPairedRows).thread_words());
  return {std::max(std::min(threads, heads) * (words + floats.key_sums(shape.sequence_length)),
                   threads * (words + floats.key_sums(fast::AttentionTiles::kKeys)))};
}

Shape matmul_scratch(const Stream& stream, DType dtype, int64_t rows, int64_t in, int64_t out) {
  if (is_cuda(stream)) return cuda::matmul_scratch();
  constexpr int64_t kFewRows = 256, kBlock = 64;  // the library pads both dims to blocks of at most this size
  const int64_t weight = (in + kBlock - 1) / kBlock * kBlock * ((out + kBlock - 1) / kBlock * kBlock);
  if (dtype == DType::float32 && fast::packs_weight(rows, in, out)) return {weight};
  if (dtype != DType::bfloat16 || rows < kFewRows) return {0};
  const int threads = std::max(1, stream.cpu.threads);
  const int64_t own = std::max(
      {fast::WeightGradientSizes(rows, in).bytes(threads), fast::MatrixProductCut(threads, rows, out, in).bytes(),
       fast::MatrixProductCut(threads, rows, in, out).bytes(), fast::MatrixProductCut(threads, out, in, rows).bytes()});
  return {std::max(weight, own / size_of(dtype))};
}

}  // namespace shiftron
