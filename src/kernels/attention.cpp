// Front ends of causal attention.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

// Checks the arguments that forward and backward share.
void check_attention(const Stream& stream, const char* kernel, const ConstTensor& q, const ConstTensor& k,
                     const ConstTensor& v, const ConstTensor& start, const AttentionShape& shape,
                     const ConstTensor& log_sum_exp) {
  check_dims(kernel, "q", q, 3);
  check_dims(kernel, "k", k, 3);
  check_floating(kernel, "q", q);
  const DType dtype = q.dtype();
  const int64_t rows = q.extent(0);
  const int64_t heads = q.extent(1);
  const int64_t head_dim = q.extent(2);
  const int64_t keys = k.extent(0);
  const int64_t kv_heads = k.extent(1);
  CHECK(kv_heads > 0 && heads % kv_heads == 0, kernel, ": heads ", heads, " not divisible by kv_heads ", kv_heads);
  CHECK(shape.sequence_length > 0 && rows % shape.sequence_length == 0, kernel, ": rows ", rows,
        " not divisible by sequence_length ", shape.sequence_length);
  const bool one_sample = rows == shape.sequence_length;
  CHECK(shape.key_offset >= 0 && (shape.key_offset == 0 || one_sample), kernel, ": key_offset ", shape.key_offset,
        " with ", rows, " rows of samples of ", shape.sequence_length);
  CHECK(one_sample ? keys >= shape.key_offset + rows : keys == rows, kernel, ": ", keys, " keys for ", rows,
        " rows of samples of ", shape.sequence_length, " and key_offset ", shape.key_offset);
  check_argument(stream, kernel, "q", q, dtype, {rows, heads, head_dim});
  check_argument(stream, kernel, "k", k, dtype, {keys, kv_heads, head_dim});
  check_argument(stream, kernel, "v", v, dtype, {keys, kv_heads, head_dim});
  check_argument(stream, kernel, "start", start, DType::int32, {rows});
  check_argument(stream, kernel, "log_sum_exp", log_sum_exp, accumulation_type(dtype), {heads, rows});
}

// Query-key pairs below the diagonal, ignoring documents.
int64_t causal_pairs(const ConstTensor& q, const AttentionShape& shape) {
  const int64_t length = shape.sequence_length;
  return q.extent(0) / length * (length * (length + 1) / 2 + length * shape.key_offset);
}

}  // namespace

void attention_forward(Stream& stream, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                       AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch) {
  constexpr const char* kName = "attention_forward";
  check_attention(stream, kName, q, k, v, start, shape, log_sum_exp);
  const DType dtype = q.dtype();
  check_argument(stream, kName, "out", out, dtype, q.shape());
  check_scratch(stream, kName, scratch, accumulation_type(dtype), attention_scratch(stream, q, k, shape));
  // q·k and the weighted sum of v: 2 head_dim operations each, for each pair and query head.
  const int64_t operations = 4 * q.extent(2) * q.extent(1) * causal_pairs(q, shape);
  const int64_t seen = shape.key_offset + q.extent(0);
  launch(stream, kName, {q, k.rows(0, seen), v.rows(0, seen), start}, {out, log_sum_exp}, operations, dtype,
         BodyTable{specification::attention_forward, fast::attention_forward, SHIFTRON_CUDA_BODY(attention_forward)},
         q, k, v, start, shape, out, log_sum_exp, scratch);
}

void attention_backward(Stream& stream, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,
                        ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q, Tensor d_k,
                        Tensor d_v, Tensor scratch) {
  constexpr const char* kName = "attention_backward";
  check_attention(stream, kName, q, k, v, start, shape, log_sum_exp);
  const DType dtype = q.dtype();
  CHECK(shape.key_offset == 0 && k.extent(0) == q.extent(0), kName, ": ", q.extent(0), " rows, ", k.extent(0),
        " keys, key_offset ", shape.key_offset, ": decoding has no gradient");
  check_argument(stream, kName, "d_out", d_out, dtype, q.shape());
  check_argument(stream, kName, "out", out, dtype, q.shape());
  check_argument(stream, kName, "d_q", d_q, dtype, q.shape());
  check_argument(stream, kName, "d_k", d_k, dtype, k.shape());
  check_argument(stream, kName, "d_v", d_v, dtype, k.shape());
  check_scratch(stream, kName, scratch, accumulation_type(dtype), attention_scratch(stream, q, k, shape));
  // Five products: scores recomputed, d_out·v, d_q, d_k, d_v.
  const int64_t operations = 10 * q.extent(2) * q.extent(1) * causal_pairs(q, shape);
  launch(stream, kName, {d_out, q, k, v, out, log_sum_exp, start}, {d_q, d_k, d_v}, operations, dtype,
         BodyTable{specification::attention_backward, fast::attention_backward, SHIFTRON_CUDA_BODY(attention_backward)},
         d_out, q, k, v, out, log_sum_exp, start, shape, d_q, d_k, d_v, scratch);
}

}  // namespace shiftron
