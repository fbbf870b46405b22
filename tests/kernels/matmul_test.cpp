// Products of a linear layer: direct sums, gradients, mixed results, faults.
#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

TEST(Matmul, MatchesDirectSums) {
  Device device;
  const int64_t rows = 3, in = 19, out = 21;
  const Owned x = random_tensor("x", {rows, in});
  const Owned w = random_tensor("w", {out, in});
  const Owned d_y = random_tensor("d_y", {rows, out});
  Owned y(DType::float64, {rows, out});
  const Owned residual = random_tensor("residual", {rows, out});
  Owned added(DType::float64, {rows, out});
  Owned d_x(DType::float64, {rows, in});
  Owned d_w = random_tensor("d_w", {out, in});
  const std::vector<double> before = d_w.values();
  matmul_forward(device.stream, x, w, y);
  matmul_forward_add(device.stream, x, w, residual, added);
  matmul_backward_input(device.stream, d_y, w, d_x);
  matmul_backward_weight(device.stream, d_y, x, InOut(d_w));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < in; ++k) sum += x[i * in + k] * w[o * in + k];
      EXPECT_NEAR(y[i * out + o], sum, 1e-13);
      EXPECT_NEAR(added[i * out + o], residual[i * out + o] + sum, 1e-13);
    }
    for (int64_t k = 0; k < in; ++k) {
      double sum = 0;
      for (int64_t o = 0; o < out; ++o) sum += d_y[i * out + o] * w[o * in + k];
      EXPECT_NEAR(d_x[i * in + k], sum, 1e-13);
    }
  }
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < in; ++k) {
      double sum = before[static_cast<size_t>(o * in + k)];
      for (int64_t i = 0; i < rows; ++i) sum += d_y[i * out + o] * x[i * in + k];
      EXPECT_NEAR(d_w[o * in + k], sum, 1e-13);
    }
  }
}

// A run's bits do not depend on whether a reduction stands between product and sum.
TEST(Matmul, AddsTheBitsOfProductAndSum) {
  Device device(DeviceKind::cpu, Bodies::fast);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t rows : {1, 5, 37}) {
      const auto given = [&](const char* name, Shape shape) {
        return Owned(dtype, shape, random_values(name, shape.count()));
      };
      const Owned x = given("x", {rows, 131}), w = given("w", {67, 131}), residual = given("residual", {rows, 67});
      const Owned product(dtype, {rows, 67}), sum(dtype, {rows, 67}), added(dtype, {rows, 67});
      matmul_forward(device.stream, x, w, product);
      add(device.stream, residual, product, sum);
      matmul_forward_add(device.stream, x, w, residual, added);
      EXPECT_EQ(added.values(), sum.values()) << name_of(dtype) << ", " << rows << " rows";
    }
  }
}

TEST(Matmul, GradientMatchesDifferences) {
  Device device;
  const Owned x = random_tensor("x", {3, 5});
  const Owned w = random_tensor("w", {4, 5});
  const Owned d_y = random_tensor("d_y", {3, 4});
  Owned y(DType::float64, {3, 4});
  const auto loss = [&] {
    matmul_forward(device.stream, x, w, y);
    return weighted_sum(y, d_y);
  };
  Owned d_x(DType::float64, {3, 5});
  Owned d_w = zeros({4, 5});
  matmul_backward_input(device.stream, d_y, w, d_x);
  matmul_backward_weight(device.stream, d_y, x, InOut(d_w));
  expect_gradient("x", x, d_x.values(), loss);
  expect_gradient("w", w, d_w.values(), loss);
}

// 2 · rows · in · out operations; bytes of the operands, what is added to on both sides.
TEST(Matmul, Costs) {
  Device device;
  const Owned x = random_tensor("x", {3, 5});
  const Owned w = random_tensor("w", {4, 5});
  Owned y = random_tensor("y", {3, 4});
  matmul_forward(device.stream, x, w, y);
  matmul_backward_weight(device.stream, y, x, InOut(w));
  EXPECT_EQ(device.ledger.kernels().at("matmul_forward"), (KernelCost{1, 8 * 35, 8 * 12, 120}));
  EXPECT_EQ(device.ledger.kernels().at("matmul_backward_weight"), (KernelCost{1, 8 * 47, 8 * 20, 120}));
  const Owned sum(DType::float64, {3, 4});
  matmul_forward_add(device.stream, x, w, y, sum);
  EXPECT_EQ(device.ledger.kernels().at("matmul_forward_add"), (KernelCost{1, 8 * 47, 8 * 12, 132}));
}

TEST(Matmul, FaultsNameTheValues) {
  Device device;
  Stream& stream = device.stream;
  const Owned x = random_tensor("x", {3, 5});
  const Owned w = random_tensor("w", {4, 6});
  Owned y(DType::float64, {3, 4});
  expect_fault("matmul_forward: w is [4, 6], not [4, 5]", [&] { matmul_forward(stream, x, w, y); });
  expect_fault("d_y is [3, 5], not [3, 4]", [&] { matmul_backward_input(stream, x, w, y); });
  expect_fault("x is [4, 6], not [3, 6]", [&] { matmul_backward_weight(stream, x, w, InOut(y)); });
  const Owned other = random_tensor("other", {4, 5});
  expect_fault("residual is [3, 5], not [3, 4]", [&] { matmul_forward_add(stream, x, other, x, y); });
  expect_fault("y overlaps residual", [&] { matmul_forward_add(stream, x, other, y, y); });
  expect_fault("y is undefined", [&] { matmul_forward(stream, x, w, Tensor()); });
  const Owned half(DType::bfloat16, {3, 5});
  expect_fault("x holds bfloat16, not float64", [&] { matmul_backward_weight(stream, x, half, InOut(y)); });
  expect_fault("y holds bfloat16, not float64", [&] { matmul_forward(stream, x, random_tensor("w", {5, 5}), half); });
  expect_fault("holds int32, not a floating type", [&] {
    matmul_forward(stream, integers({1}).tensor().view({1, 1}), w, y);
  });
  Device meta(DeviceKind::meta);
  expect_fault("x is on cpu, but the stream is on meta", [&] { matmul_forward(meta.stream, x, x, y); });
  expect_fault("matmul_backward_weight: d_y is on cpu, but",
               [&] { matmul_backward_weight(meta.stream, y, x, InOut(w)); });
  EXPECT_TRUE(device.ledger.kernels().empty());
}

}  // namespace
}  // namespace shiftron::kernel_testing
