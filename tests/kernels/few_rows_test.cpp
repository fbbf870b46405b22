// The kernels for decoding, products of few rows and attention of one row: their bits depend neither on the thread
// count nor on the other rows. fast_test.cpp bounds their errors, over the table of all calls.
#include "kernels/kernel_testing.h"
#include "kernels/matrix.h"

namespace shiftron::kernel_testing {
namespace {

Owned random_of(DType dtype, const std::string& name, Shape shape, int64_t padding = 0) {
  Owned owned(dtype, shape, DeviceKind::cpu, padding);
  owned.set(random_values(name, shape.count()));
  return owned;
}

// y = x wᵀ of `rows` rows from row `first` of a fixed x on, as a fast body gives it.
std::vector<double> product(DType dtype, DType result, int64_t first, int64_t rows, int threads) {
  constexpr int64_t kIn = 333, kOut = 101;
  Device device(DeviceKind::cpu, Bodies::fast);
  device.stream.cpu.threads = threads;
  const Owned x = random_of(dtype, "x", {8, kIn}, 5);
  const Owned w = random_of(dtype, "w", {kOut, kIn}, 2);
  Owned y(result, {rows, kOut}, DeviceKind::cpu, 7);
  matmul_forward(device.stream, x.tensor().rows(first, rows), w, y);
  EXPECT_TRUE(y.padding_intact());
  return y.values();
}

TEST(FewRows, BitsOfAProductDependOnNoThreadAndNoOtherRow) {
  for (const auto& [dtype, result] : {std::pair{DType::float32, DType::float32},
                                      {DType::bfloat16, DType::bfloat16},
                                      {DType::bfloat16, DType::float32}}) {
    const int64_t rows = fast::few_rows(dtype);
    const std::vector<double> all = product(dtype, result, 0, rows, 1);
    for (const int threads : {2, 3}) EXPECT_EQ(product(dtype, result, 0, rows, threads), all) << threads << " threads";
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<double> alone = product(dtype, result, row, 1, 1);
      const auto width = static_cast<int64_t>(alone.size());
      const std::vector<double> among(all.begin() + row * width, all.begin() + (row + 1) * width);
      EXPECT_EQ(alone, among) << "row " << row;
    }
  }
}

// Infinity and NaN in the weights of one output reach that output and no other.
TEST(FewRows, WhatIsNotFiniteStaysInItsOutput) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    Device device(DeviceKind::cpu, Bodies::fast);
    const Owned x(dtype, {1, 101}, std::vector<double>(101, 1.0));
    const Owned w(dtype, {3, 101}, std::vector<double>(303, 1.0));
    put(w, 40, std::numeric_limits<double>::infinity());
    put(w, 202 + 97, std::numeric_limits<double>::quiet_NaN());
    Owned y(DType::float32, {1, 3});
    matmul_forward(device.stream, x, w, y);
    EXPECT_EQ(y[0], std::numeric_limits<double>::infinity());
    EXPECT_EQ(y[1], 101.0);
    EXPECT_TRUE(std::isnan(y[2]));
  }
}

TEST(FewRows, BitsOfAttentionDependOnNoThread) {
  constexpr int64_t kKeys = 1301, kHeads = 6, kKvHeads = 2, kWidth = 20;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto attend = [&](int threads) {
      Device device(DeviceKind::cpu, Bodies::fast);
      device.stream.cpu.threads = threads;
      const Owned q = random_of(dtype, "q", {1, kHeads, kWidth});
      const Owned k = random_of(dtype, "k", {kKeys, kKvHeads, kWidth});
      const Owned v = random_of(dtype, "v", {kKeys, kKvHeads, kWidth});
      const Owned out(dtype, {1, kHeads, kWidth});
      const Owned log_sum_exp(DType::float32, {kHeads, 1});
      const AttentionShape shape{.sequence_length = 1, .key_offset = kKeys - 1};
      const Owned scratch(DType::float32, attention_scratch(device.stream, q, k, shape));
      attention_forward(device.stream, q, k, v, integers({0}), shape, out, log_sum_exp, scratch);
      std::vector<double> results = out.values();
      for (const double value : log_sum_exp.values()) results.push_back(value);
      return results;
    };
    const std::vector<double> one = attend(1);
    for (const int threads : {2, 3}) EXPECT_EQ(attend(threads), one) << threads << " threads";
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
