// The bytes per token that the front ends charge to the ledger in bfloat16 are no more than the operation must move:
// each operand read once, each result written once. Other products and attention belong to the libraries.
#include "kernels/kernel_testing.h"
#include "kernels/scratch.h"

namespace shiftron::kernel_testing {
namespace {

constexpr int64_t kTokens = 4096, kHidden = 2048, kHeads = 16, kKvHeads = 4, kHeadDim = 128, kFfn = 5504,
                  kVocab = 36000;
constexpr int64_t kKv = kKvHeads * kHeadDim;

Tensor planned(DType dtype, const Shape& shape) {
  return {nullptr, dtype, shape, DeviceKind::meta};
}
Tensor activation(const Shape& shape) {
  return planned(DType::bfloat16, shape);
}
Tensor precise(const Shape& shape) {
  return planned(DType::float32, shape);
}

struct Case {
  const char* name;
  double least;     // bytes of a token, of tensors that grow with tokens
  double constant;  // bytes of a call: weights, tables, and what is one number a token
  std::function<void(Stream&)> call;
};
void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

ShiftRope shift_of(int64_t heads) {
  return {.taps = precise({heads, 2}),
          .rope = precise({2, kTokens, kHeadDim / 2}),
          .positions = planned(DType::int32, {kTokens}),
          .shift_start = planned(DType::int32, {kTokens}),
          .carried = {}};
}

ShiftRope rotation() {
  ShiftRope how = shift_of(kHeads);
  how.taps = how.shift_start = Tensor();
  return how;
}
ShiftRope shift_of_value() {
  ShiftRope how = shift_of(kKvHeads);
  how.rope = how.positions = Tensor();
  return how;
}

AdamWParameter halves_of(int64_t count) {
  return {.weight_decay = 0.1,
          .gradient = precise({count}),
          .weight = activation({count}),
          .rest = planned(DType::uint16, {count}),
          .first_moment = precise({count}),
          .second_moment = precise({count})};
}

std::vector<Case> all() {
  const Tensor x = activation({kTokens, kHidden}), wide = activation({kTokens, kFfn});
  const Tensor logits = activation({kTokens, kVocab}), q = activation({kTokens, kHeads, kHeadDim});
  const Tensor k = activation({kTokens, kKvHeads, kHeadDim}), w = precise({kHidden}), of_row = precise({kTokens});
  const Tensor ids = planned(DType::int32, {kTokens});
  const Tensor one = planned(DType::float64, {1}), scalars = planned(DType::float64, {kUpdateScalars});
  constexpr double h = kHidden, f = kFfn, kv = kKv, v = kVocab, numbers = 4.0 * kTokens;
  constexpr double rope = 4.0 * kTokens * kHeadDim;
  return {
      {"matmul_forward_add", 6 * h, 2 * h * h,
       [=](Stream& s) {
         matmul_forward_add(s, x, activation({kHidden, kHidden}), x, x);
       }},
      {"add", 6 * h, 0, [=](Stream& s) { add(s, x, x, x); }},
      {"rms_norm_forward", 4 * h, numbers + 4 * h, [=](Stream& s) { rms_norm_forward(s, x, w, 1e-5, x, of_row); }},
      {"add_rms_norm_forward", 8 * h, numbers + 4 * h,
       [=](Stream& s) {
         add_rms_norm_forward(s, activation({kTokens, kHidden}), InOut(x), w, 1e-5, x, of_row);
       }},
      {"rms_norm_backward", 8 * h, numbers + 12 * h,
       [=](Stream& s) {
         const Tensor scratch = precise(rms_norm_scratch(s, kTokens, kHidden));
         rms_norm_backward(s, x, x, w, of_row, InOut(x), InOut(w), scratch);
       }},
      {"shift_rope_forward of the query", 4 * h, rope + 2 * numbers,
       [=](Stream& s) { shift_rope_forward(s, q, rotation(), q); }},
      {"shift_rope_forward of the key", 4 * kv, rope + 2 * numbers + 8 * kKvHeads,
       [=](Stream& s) { shift_rope_forward(s, k, shift_of(kKvHeads), k); }},
      {"shift_rope_backward of the query", 4 * h, rope + 2 * numbers,
       [=](Stream& s) {
         const Tensor scratch = precise(shift_rope_scratch(s, kTokens, kHeads, kHeadDim, 0));
         shift_rope_backward(s, q, q, rotation(), q, {}, scratch);
       }},
      {"shift_rope_backward of the key", 6 * kv, rope + 2 * numbers + 24 * kKvHeads,
       [=](Stream& s) {
         const Tensor scratch = precise(shift_rope_scratch(s, kTokens, kKvHeads, kHeadDim, 2));
         shift_rope_backward(s, k, k, shift_of(kKvHeads), k, precise({kKvHeads, 2}), scratch);
       }},
      // Of a layer: what its streams share is read once.
      {"shift_rope_forward of a layer", 4 * h + 8 * kv, rope + 3 * numbers + 16 * kKvHeads,
       [=](Stream& s) {
         shift_rope_forward(s, {{q, rotation(), q}, {k, shift_of(kKvHeads), k}, {k, shift_of_value(), k}});
       }},
      {"shift_rope_backward of a layer", 4 * h + 12 * kv, rope + 3 * numbers + 48 * kKvHeads,
       [=](Stream& s) {
         const Tensor d_taps = precise({kKvHeads, 2});
         const std::vector<ShiftBackward> streams = {
             {q, q, rotation(), q, {}}, {k, k, shift_of(kKvHeads), k, d_taps}, {k, k, shift_of_value(), k, d_taps}};
         shift_rope_backward(s, streams, precise(shift_rope_scratch(s, streams)));
       }},
      {"swiglu_forward", 6 * f, 0, [=](Stream& s) { swiglu_forward(s, wide, wide, wide); }},
      {"swiglu_backward", 10 * f, 0, [=](Stream& s) { swiglu_backward(s, wide, wide, wide, wide, wide); }},
      {"swiglu_backward with the output", 12 * f, 0,
       [=](Stream& s) { swiglu_backward(s, wide, wide, wide, wide, wide, wide); }},
      {"embedding_forward", 4 * h, numbers,
       [=](Stream& s) {
         embedding_forward(s, ids, activation({kVocab, kHidden}), 0, x);
       }},
      {"embedding_backward", 2 * h + 8 * h, numbers,
       [=](Stream& s) {
         embedding_backward(s, ids, x, 0, InOut(precise({kVocab, kHidden})));
       }},
      {"cross_entropy", 4 * v, 3 * numbers,
       [=](Stream& s) { cross_entropy(s, InOut(logits), ids, 1, of_row, of_row); }},
      {"add_losses", 0, 3 * numbers + 48,
       [=](Stream& s) { add_losses(s, of_row, of_row, ids, InOut(planned(DType::float64, {kLossTotals}))); }},
      // Of a part of the vocabulary: read for the sum, read and written for the gradient.
      {"cross_entropy_statistics", 2 * v, 5 * numbers,
       [=](Stream& s) {
         cross_entropy_statistics(s, logits, ids, 0, precise({kTokens, kRowStatistics}));
       }},
      {"first_maximum", 2 * v, 2 * numbers,
       [=](Stream& s) {
         first_maximum(s, logits, 0, precise({kTokens, 2}));
       }},
      {"cross_entropy_backward", 4 * v, 2 * numbers,
       [=](Stream& s) { cross_entropy_backward(s, InOut(logits), of_row, ids, 0, 1); }},
      // Of a parameter: gradient, moments and master, all of 4 bytes; all but the gradient written too.
      {"adamw", 28, 8 * kUpdateScalars,
       [=](Stream& s) { adamw(s, {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, scalars, {halves_of(kTokens)}); }},
      {"adamw of a list", 28, 8 * kUpdateScalars,
       [=](Stream& s) {
         AdamWParameter whole = halves_of(kTokens - 1000);
         whole.weight = precise({kTokens - 1000});
         whole.rest = Tensor();
         adamw(s, {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, scalars, {whole, halves_of(1000)});
       }},
      {"sum_of_squares", 4, 16,
       [=](Stream& s) {
         const std::vector<Squares> squares = {{precise({kTokens}), 0}};
         sum_of_squares(s, squares, InOut(one), planned(DType::float64, sum_of_squares_scratch(s, squares)));
       }},
      {"sum_of_squares of a list", 4, 48,
       [=](Stream& s) {
         const std::vector<Squares> squares = {
             {precise({1000}), 0}, {precise({kTokens - 1096}), 0}, {precise({96}), 2}};
         sum_of_squares(s, squares, InOut(planned(DType::float64, {3})),
                        planned(DType::float64, sum_of_squares_scratch(s, squares)));
       }},
  };
}

class KernelBytes : public ::testing::TestWithParam<Case> {};

TEST_P(KernelBytes, AreWhatTheOperationMustMove) {
  Device device(DeviceKind::meta);
  GetParam().call(device.stream);
  ASSERT_EQ(device.ledger.kernels().size(), 1u);
  const KernelCost& cost = device.ledger.kernels().begin()->second;
  const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
  EXPECT_LE(bytes, GetParam().least * kTokens + GetParam().constant);
  EXPECT_GE(bytes, GetParam().least * kTokens) << "an operand is not charged";
}

// 2 · head_dim for each query head, each pair of a query and a key that is not later, and each product: two of forward,
// five of backward.
TEST(KernelOperations, OfAttentionAreThoseOfItsProducts) {
  constexpr int64_t kLength = 1024;
  Device device(DeviceKind::meta);
  Stream& stream = device.stream;
  const Tensor q = activation({kTokens, kHeads, kHeadDim}), k = activation({kTokens, kKvHeads, kHeadDim});
  const Tensor start = planned(DType::int32, {kTokens}), log_sum_exp = precise({kHeads, kTokens});
  const AttentionShape shape{.sequence_length = kLength};
  const Tensor scratch = precise(attention_scratch(stream, q, k, shape));
  attention_forward(stream, q, k, k, start, shape, q, log_sum_exp, scratch);
  attention_backward(stream, q, q, k, k, q, log_sum_exp, start, shape, q, k, k, scratch);
  constexpr int64_t kProduct = 2 * kHeadDim * kHeads * (kTokens / kLength) * (kLength * (kLength + 1) / 2);
  EXPECT_EQ(device.ledger.kernels().at("attention_forward").operations, 2 * kProduct);
  EXPECT_EQ(device.ledger.kernels().at("attention_backward").operations, 5 * kProduct);
}

INSTANTIATE_TEST_SUITE_P(All, KernelBytes, ::testing::ValuesIn(all()), [](const auto& of) {
  std::string name = of.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace shiftron::kernel_testing
