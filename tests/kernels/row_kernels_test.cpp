// Kernels that work row by row: copies, sums, embedding, RMS norm, SwiGLU.
#include <cstdint>

#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

TEST(Elementwise, SumsAndCopies) {
  Device device;
  const Owned a(DType::float32, {2, 2}, {1, 2, 3, 4});
  const Owned b(DType::float32, {2, 2}, {10, 20, 30, 40});
  Owned y(DType::float32, {2, 2});
  add(device.stream, a, b, y);
  EXPECT_EQ(y.values(), (std::vector<double>{11, 22, 33, 44}));
  add(device.stream, y, y, y);  // in place
  EXPECT_EQ(y.values(), (std::vector<double>{22, 44, 66, 88}));
  Owned half(DType::bfloat16, {2, 2});
  copy(device.stream, Owned(DType::float64, {2, 2}, {1.00390625, 1.01171875, -3, 1e9}), half);
  EXPECT_EQ(half.values(), (std::vector<double>{1, 1.015625, -3, 998244352}));
  fill_zero(device.stream, y);
  EXPECT_EQ(y.values(), (std::vector<double>(4)));
  expect_fault("copy: y is [2, 2], not [4]", [&] { copy(device.stream, random_tensor("x", {4}), y); });
  Owned numbers(DType::int32, {2, 2});
  copy(device.stream, Owned(DType::int32, {2, 2}, {1, -2, 3, 2147483647}), numbers);
  EXPECT_EQ(numbers.values(), (std::vector<double>{1, -2, 3, 2147483647}));
  expect_fault("copy: y holds float32, not int32", [&] { copy(device.stream, numbers, y); });
  expect_fault("copy: x [2, 1] is not contiguous",
               [&] { copy(device.stream, numbers.tensor().slice(1, 0, 1), numbers.tensor().slice(1, 1, 1)); });
  expect_fault("is not contiguous", [&] { fill_zero(device.stream, y.tensor().slice(1, 0, 1)); });
}

// Float32 inputs whose squares and sums only float64 can hold.
TEST(Elementwise, SumsRunInFloat64AndAdd) {
  Device device;
  const Owned x(DType::float32, {3, 2}, {4096, 1, 1, 1e-3, -1, 16777216});
  Owned sum(DType::float64, {1}, {0.5});
  sum_of_squares(device.stream, {{x.tensor().view({6}), 0}}, InOut(sum));
  EXPECT_DOUBLE_EQ(sum[0], 0.5 + 16777216.0 + 3 + std::pow(rounded(1e-3, DType::float32), 2) + 0x1p48);
  Owned sums(DType::float64, {2}, {1, 2});
  sum_columns(device.stream, x, InOut(sums));
  EXPECT_DOUBLE_EQ(sums[0], 1 + 4096.0);
  EXPECT_DOUBLE_EQ(sums[1], 2 + 1 + rounded(1e-3, DType::float32) + 16777216.0);
}

// Over two shards of the vocabulary each token's row comes from one, the sum is the lookup in the whole table.
TEST(Embedding, ShardsAddUp) {
  Device device;
  const Owned table = random_tensor("table", {7, 3});
  const Owned ids = integers({6, 0, 3, 3, 2, 6});
  const Owned d_y = random_tensor("d_y", {6, 3});
  Owned first(DType::float64, {6, 3});
  Owned second(DType::float64, {6, 3});
  embedding_forward(device.stream, ids, table.tensor().rows(0, 3), 0, first);
  embedding_forward(device.stream, ids, table.tensor().rows(3, 4), 3, second);
  Owned d_table(DType::float64, {7, 3}, std::vector<double>(21, 100));
  embedding_backward(device.stream, ids, d_y, 0, InOut(d_table.tensor().rows(0, 3)));
  embedding_backward(device.stream, ids, d_y, 3, InOut(d_table.tensor().rows(3, 4)));
  std::vector<double> expected(21, 100);
  for (int64_t t = 0; t < 6; ++t) {
    const auto id = static_cast<int64_t>(ids[t]);
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_EQ((id < 3 ? first : second)[t * 3 + j], table[id * 3 + j]);
      EXPECT_EQ((id < 3 ? second : first)[t * 3 + j], 0);
      expected[static_cast<size_t>(id * 3 + j)] += d_y[t * 3 + j];
    }
  }
  EXPECT_EQ(d_table.values(), expected);
  expect_fault("embedding_forward: y is [6, 3], not [2, 3]", [&] {
    embedding_forward(device.stream, integers({1, 2}), table, 0, first);
  });
}

TEST(RmsNorm, HandComputed) {
  Device device;
  const Owned x(DType::float64, {2, 2}, {3, 4, 0, 0});
  const Owned w(DType::float64, {2}, {1, 2});
  Owned y(DType::float64, {2, 2});
  Owned inverse_rms(DType::float64, {2});
  rms_norm_forward(device.stream, x, w, 0.0625, y, inverse_rms);
  const double r = 1 / std::sqrt(12.5 + 0.0625);
  EXPECT_DOUBLE_EQ(inverse_rms[0], r);
  EXPECT_DOUBLE_EQ(inverse_rms[1], 4);  // a row of zeros: 1/√epsilon
  EXPECT_DOUBLE_EQ(y[0], 3 * r);
  EXPECT_DOUBLE_EQ(y[1], 8 * r);
  EXPECT_EQ(y[2], 0);
}

// Also where the sum is rounded: the scale is the rounded row's.
TEST(RmsNorm, BehindASumHasTheBitsOfBoth) {
  const std::vector<KernelCase> calls = sum_and_norm_both_ways(19, 67);
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const How how{.dtype = dtype, .inputs = dtype, .bodies = bodies};
      EXPECT_EQ(evaluate(calls[0], how).values, evaluate(calls[1], how).values);
    }
  }
}

TEST(RmsNorm, GradientMatchesDifferences) {
  for (const int64_t rows : {1, 4}) {
    Device device;
    const Shape shape = {rows, 5};
    const Owned x = random_tensor("x", shape);
    const Owned w = random_tensor("w", {5}, 0.5, 1);
    const Owned d_y = random_tensor("d_y", shape);
    Owned y(DType::float64, shape);
    Owned inverse_rms(DType::float64, {rows});
    const auto loss = [&] {
      rms_norm_forward(device.stream, x, w, 1e-2, y, inverse_rms);
      return weighted_sum(y, d_y);
    };
    loss();
    Owned d_x(DType::float64, shape, std::vector<double>(static_cast<size_t>(shape.count()), 8));
    Owned d_w(DType::float64, {5}, {16, 16, 16, 16, 16});
    Owned scratch(DType::float64, rms_norm_scratch({}, rows, 5));
    rms_norm_backward(device.stream, d_y, x, w, inverse_rms, InOut(d_x), InOut(d_w), scratch);
    const auto less = [](std::vector<double> values, double by) {  // both add to what is there
      for (double& value : values) value -= by;
      return values;
    };
    expect_gradient("x", x, less(d_x.values(), 8), loss);
    expect_gradient("w", w, less(d_w.values(), 16), loss);
    expect_fault("w is [5], not [4]", [&] {
      rms_norm_forward(device.stream, random_tensor("n", {rows, 4}), w, 1e-2, y, inverse_rms);
    });
  }
}

TEST(Swiglu, GradientMatchesDifferences) {
  Device device;
  const Owned gate = random_tensor("gate", {3, 4}, 2);
  const Owned up = random_tensor("up", {3, 4});
  const Owned d_y = random_tensor("d_y", {3, 4});
  Owned y(DType::float64, {3, 4});
  const auto loss = [&] {
    swiglu_forward(device.stream, gate, up, y);
    return weighted_sum(y, d_y);
  };
  loss();
  EXPECT_DOUBLE_EQ(y[5], gate[5] / (1 + std::exp(-gate[5])) * up[5]);
  Owned d_gate(DType::float64, {3, 4});
  Owned d_up(DType::float64, {3, 4});
  swiglu_backward(device.stream, d_y, gate, up, d_gate, d_up);
  expect_gradient("gate", gate, d_gate.values(), loss);
  expect_gradient("up", up, d_up.values(), loss);
  const Owned in_place_gate(DType::float64, {3, 4}, gate.values());
  const Owned in_place_up(DType::float64, {3, 4}, up.values());
  const Owned in_place_y(DType::float64, {3, 4}, d_y.values());
  swiglu_backward(device.stream, in_place_y, in_place_gate, in_place_up, in_place_gate, in_place_up, in_place_y);
  loss();
  EXPECT_EQ(in_place_y.values(), y.values());
  EXPECT_EQ(in_place_gate.values(), d_gate.values());
  EXPECT_EQ(in_place_up.values(), d_up.values());
}

// Sigmoid of large arguments of either sign: 0 and 1, no NaN.
TEST(Swiglu, SurvivesLargeGates) {
  for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
    Device device(DeviceKind::cpu, bodies);
    const Owned gate(DType::float32, {1, 4}, {-1e4, 1e4, -200, 200});
    const Owned up(DType::float32, {1, 4}, {1, 2, 3, 4});
    Owned y(DType::float32, {1, 4});
    swiglu_forward(device.stream, gate, up, y);
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], (std::vector<double>{0, 2e4, 0, 800})[i], 1e-3);
    Owned d_gate(DType::float32, {1, 4});
    Owned d_up(DType::float32, {1, 4});
    const Owned ones(DType::float32, {1, 4}, {1, 1, 1, 1});
    swiglu_backward(device.stream, ones, gate, up, d_gate, d_up);
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(d_gate[i], (std::vector<double>{0, 2, 0, 4})[i], 1e-3);
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(d_up[i], (std::vector<double>{0, 1e4, 0, 200})[i], 1e-3);
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
