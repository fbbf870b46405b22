// Causal attention: a brute-force softmax, documents, decoding, gradients, faults.
#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

struct AttentionInputs {
  AttentionInputs(const std::vector<int64_t>& lengths, int64_t sequence_length, int64_t heads_, int64_t kv_heads_,
                  int64_t head_dim_)
      : documents(lengths),
        rows(documents.rows()),
        heads(heads_),
        kv_heads(kv_heads_),
        head_dim(head_dim_),
        shape{sequence_length},
        q(random_tensor("q", {rows, heads, head_dim})),
        k(random_tensor("k", {rows, kv_heads, head_dim})),
        v(random_tensor("v", {rows, kv_heads, head_dim})),
        start(integers(documents.start)),
        out(DType::float64, {rows, heads, head_dim}),
        log_sum_exp(DType::float64, {heads, rows}),
        scratch(DType::float64, attention_scratch(device.stream, q, k, shape)) {}
  void forward() { attention_forward(device.stream, q, k, v, start, shape, out, log_sum_exp, scratch); }

  Device device;
  DocumentRows documents;
  int64_t rows, heads, kv_heads, head_dim;
  AttentionShape shape;
  Owned q, k, v, start, out, log_sum_exp, scratch;
};

// Whole score matrix, two passes of softmax.
TEST(Attention, MatchesBruteForce) {
  struct Try {
    std::vector<int64_t> documents;
    int64_t sequence_length, heads, kv_heads, head_dim;
  };
  for (const Try& t : {Try{{7}, 7, 2, 2, 3}, Try{{2, 4, 1}, 7, 6, 2, 4}, Try{{5, 3, 4, 4}, 8, 4, 1, 5},
                       Try{{1}, 1, 1, 1, 1}, Try{{1, 1, 1}, 3, 2, 1, 2}}) {
    AttentionInputs in(t.documents, t.sequence_length, t.heads, t.kv_heads, t.head_dim);
    in.forward();
    const int64_t group = t.heads / t.kv_heads;
    for (int64_t head = 0; head < t.heads; ++head) {
      for (int64_t row = 0; row < in.rows; ++row) {
        const int64_t first = in.documents.start[static_cast<size_t>(row)];
        std::vector<double> weights;
        double total = 0;
        for (int64_t s = first; s <= row; ++s) {
          double score = 0;
          for (int64_t d = 0; d < t.head_dim; ++d) {
            score +=
                in.q[(row * t.heads + head) * t.head_dim + d] * in.k[(s * t.kv_heads + head / group) * t.head_dim + d];
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(t.head_dim))));
          total += weights.back();
        }
        EXPECT_NEAR(in.log_sum_exp[head * in.rows + row], std::log(total), 1e-13);
        for (int64_t d = 0; d < t.head_dim; ++d) {
          double expected = 0;
          for (int64_t s = first; s <= row; ++s) {
            expected += weights[static_cast<size_t>(s - first)] / total *
                        in.v[(s * t.kv_heads + head / group) * t.head_dim + d];
          }
          EXPECT_NEAR(in.out[(row * t.heads + head) * t.head_dim + d], expected, 1e-13);
        }
      }
    }
  }
}

// Large scores of either sign neither overflow nor lose the sum.
TEST(Attention, SurvivesLargeScores) {
  AttentionInputs in({4}, 4, 1, 1, 1);
  in.q.set({1, 1, 1, 1});
  in.k.set({-2000, 1000, 3000, 3000});
  in.v.set({1, 2, 3, 5});
  in.forward();
  EXPECT_EQ(in.out.values(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_NEAR(in.log_sum_exp[3], 3000 + std::log(2.0), 1e-9);
}

// What stands in another document or another sample changes not a bit, forward or backward.
TEST(Attention, NothingCrossesADocument) {
  AttentionInputs in({3, 5, 2, 6}, 8, 2, 1, 4);
  const Owned d_out = random_tensor("d_out", {16, 2, 4});
  struct Results {
    std::vector<double> out, d_q, d_k, d_v;
  };
  const auto run = [&] {
    in.forward();
    Owned d_q(DType::float64, {16, 2, 4});
    Owned d_k(DType::float64, {16, 1, 4});
    Owned d_v(DType::float64, {16, 1, 4});
    attention_backward(in.device.stream, d_out, in.q, in.k, in.v, in.out, in.log_sum_exp, in.start, in.shape, d_q, d_k,
                       d_v, in.scratch);
    return Results{in.out.values(), d_q.values(), d_k.values(), d_v.values()};
  };
  const Results before = run();
  for (int64_t row = 0; row < 16; ++row) {  // only rows 3 to 7 stay
    if (row >= 3 && row < 8) continue;
    for (int64_t d = 0; d < 4; ++d) {
      put(in.k, row * 4 + d, 50);
      put(in.v, row * 4 + d, 70);
    }
    for (int64_t i = 0; i < 8; ++i) put(in.q, row * 8 + i, -30);
  }
  const Results after = run();
  for (size_t i = 3 * 8; i < 8 * 8; ++i) {
    EXPECT_EQ(before.out[i], after.out[i]) << i;
    EXPECT_EQ(before.d_q[i], after.d_q[i]) << i;
  }
  for (size_t i = 3 * 4; i < 8 * 4; ++i) {
    EXPECT_EQ(before.d_k[i], after.d_k[i]) << i;
    EXPECT_EQ(before.d_v[i], after.d_v[i]) << i;
  }
}

// The last rows against a cache of all keys are the last rows of the whole.
TEST(Attention, DecodingContinuesASequence) {
  AttentionInputs in({9}, 9, 4, 2, 3);
  in.forward();
  for (const int64_t rest : {1, 4}) {
    const int64_t offset = 9 - rest;
    Owned out(DType::float64, {rest, 4, 3});
    Owned log_sum_exp(DType::float64, {4, rest});
    const Owned start = integers(std::vector<int64_t>(static_cast<size_t>(rest), 0));
    attention_forward(in.device.stream, in.q.tensor().rows(offset, rest), in.k, in.v, start,
                      {.sequence_length = rest, .key_offset = offset}, out, log_sum_exp, in.scratch);
    for (int64_t i = 0; i < rest * 12; ++i) EXPECT_EQ(out[i], in.out[offset * 12 + i]);
  }
}

TEST(Attention, GradientMatchesDifferences) {
  struct Try {
    std::vector<int64_t> documents;
    int64_t sequence_length, heads, kv_heads;
  };
  for (const Try& t : {Try{{5}, 5, 2, 2}, Try{{2, 4, 1}, 7, 4, 2}, Try{{3, 1, 4}, 4, 3, 1}, Try{{1, 1, 1}, 3, 2, 1}}) {
    AttentionInputs in(t.documents, t.sequence_length, t.heads, t.kv_heads, 3);
    const Owned d_out = random_tensor("d_out", {in.rows, t.heads, 3});
    const auto loss = [&] {
      in.forward();
      return weighted_sum(in.out, d_out);
    };
    loss();
    Owned d_q(DType::float64, {in.rows, t.heads, 3});
    Owned d_k(DType::float64, {in.rows, t.kv_heads, 3});
    Owned d_v(DType::float64, {in.rows, t.kv_heads, 3});
    attention_backward(in.device.stream, d_out, in.q, in.k, in.v, in.out, in.log_sum_exp, in.start, in.shape, d_q, d_k,
                       d_v, in.scratch);
    expect_gradient("q", in.q, d_q.values(), loss);
    expect_gradient("k", in.k, d_k.values(), loss);
    expect_gradient("v", in.v, d_v.values(), loss);
  }
}

TEST(Attention, FaultsNameTheValues) {
  AttentionInputs in({6}, 6, 4, 2, 3);
  const auto forward = [&](const Owned& k, const Owned& start, AttentionShape shape) {
    attention_forward(in.device.stream, in.q, k, in.v, start, shape, in.out, in.log_sum_exp, in.scratch);
  };
  expect_fault("heads 4 not divisible by kv_heads 3", [&] {
    forward(random_tensor("k", {6, 3, 3}), in.start, in.shape);
  });
  expect_fault("v is [6, 2, 3], not [7, 2, 3]", [&] { forward(random_tensor("k", {7, 2, 3}), in.start, in.shape); });
  expect_fault("rows 6 not divisible by sequence_length 4", [&] { forward(in.k, in.start, {4}); });
  expect_fault("key_offset 2 with 6 rows of samples of 3", [&] { forward(in.k, in.start, {3, 2}); });
  expect_fault("6 keys for 6 rows", [&] { forward(in.k, in.start, {6, 1}); });
  const auto check = [&](const std::vector<int32_t>& start, AttentionShape shape) {
    check_row_starts(start.data(), static_cast<int64_t>(start.size()), shape);
  };
  expect_fault("start 4 of row 3 is outside 0..3", [&] { check({0, 0, 0, 4, 4, 4}, in.shape); });
  expect_fault("start 0 of row 2 is outside 1..2", [&] { check({0, 1, 0, 0, 0, 0}, in.shape); });
  expect_fault("start 0 of row 3 is outside 3..3", [&] { check({0, 0, 0, 0, 0, 0}, {3}); });
  EXPECT_NO_THROW(check({0, 0, 2, 2, 3, 3}, in.shape));
  in.scratch = Owned(DType::float64, {1});
  expect_fault("scratch [1] is smaller than", [&] { forward(in.k, in.start, in.shape); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
