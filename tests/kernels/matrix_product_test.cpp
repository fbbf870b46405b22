// Large products by the matrix unit, on its loops where the processor has none: every way of cutting them, edges,
// memory around, threads.
#include "kernels/matrix_product.h"

#include <limits>
#include <tuple>

#include "kernels/kernel_testing.h"
#include "kernels/matrix_unit.h"
#include "kernels/matrix_unit_emulator.h"
#include "kernels/tile_product.h"

namespace shiftron::kernel_testing {
namespace {

using fast::Matrix;
using fast::MatrixProduct;
using fast::MatrixProductCut;

struct Extents {
  int64_t m, n, k;
};

std::string text_of(const Extents& of) {
  return std::to_string(of.m) + " × " + std::to_string(of.n) + " × " + std::to_string(of.k);
}

// A matrix of small numbers whose rows lie behind each other with NaN between.
struct Operand {
  static constexpr int64_t kGap = 6;  // even, so that pairs stay words
  Operand(const std::string& name, int64_t all_rows, int64_t all_columns, bool is_transposed)
      : rows(is_transposed ? all_columns : all_rows),
        columns(is_transposed ? all_rows : all_columns),
        transposed(is_transposed),
        values(static_cast<size_t>(rows * (columns + kGap)), bfloat16{0x7fc0}) {
    const std::vector<double> random = random_values(name, rows * columns);
    for (int64_t i = 0; i < rows * columns; ++i) {
      values[static_cast<size_t>(i / columns * (columns + kGap) + i % columns)] =
          to_bfloat16(static_cast<float>(random[static_cast<size_t>(i)]));
    }
  }
  Matrix matrix() const { return {values.data(), DType::bfloat16, columns + kGap, transposed}; }
  double at(int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return to_accumulate(values[static_cast<size_t>(row * (columns + kGap) + column)]);
  }
  int64_t rows, columns;
  bool transposed;
  std::vector<bfloat16> values;
};

// Rows of a result with something behind each that must stand.
template <typename T>
struct Target {
  static constexpr int64_t kGap = 3;
  Target(const Extents& of, T before) : stride(of.n + kGap), values(static_cast<size_t>(of.m * stride), before) {}
  T at(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * stride + column)]; }
  int64_t stride;
  std::vector<T> values;
};

class MatrixProductTest : public ::testing::TestWithParam<ProductsBy> {
 protected:
  void SetUp() override {
    if (fast::tile_body(GetParam()) == nullptr) GTEST_SKIP() << "no bfloat16 vectors, or no such unit, here";
  }

  template <typename T>
  void multiply(int threads, const Extents& of, const Operand& a, const Operand& b, bool keep, Target<T>& c) {
    const int64_t bytes = MatrixProductCut(threads, of.m, of.n, of.k).bytes();
    std::vector<bfloat16> room(static_cast<size_t>(bytes / 2), bfloat16{0x7fc0});
    const DType dtype = std::is_same_v<T, float> ? DType::float32 : DType::bfloat16;
    ASSERT_TRUE(fast::multiply_by_matrix_unit(
        GetParam(), {threads, of.m, of.n, of.k, a.matrix(), b.matrix(), keep, c.values.data(), dtype, c.stride,
                     Tensor(room.data(), DType::bfloat16, {bytes / 2}, DeviceKind::cpu)}));
  }

  template <typename T>
  void expect_product(const Extents& of, bool a_transposed, bool b_transposed, bool keep, int threads = 2) {
    SCOPED_TRACE(text_of(of) + (a_transposed ? ", a transposed" : "") + (b_transposed ? ", b transposed" : ""));
    const Operand a("a", of.m, of.k, a_transposed), b("b", of.k, of.n, b_transposed);
    const T before = T{std::is_same_v<T, float> ? T(0.25f) : T{}};
    Target<T> c(of, before);
    multiply(threads, of, a, b, keep, c);
    for (int64_t row = 0; row < of.m; ++row) {
      for (int64_t column = 0; column < of.n; ++column) {
        double sum = keep ? to_accumulate(before) : 0, size = std::abs(sum);
        for (int64_t i = 0; i < of.k; ++i) {
          sum += a.at(row, i) * b.at(i, column);
          size += std::abs(a.at(row, i) * b.at(i, column));
        }
        // Each of the k additions rounds once, and the result.
        const double rounding = std::is_same_v<T, float> ? 0 : std::abs(sum) / 256;
        const double bound = size * static_cast<double>(of.k + 2) * std::numeric_limits<float>::epsilon() + rounding;
        ASSERT_NEAR(to_accumulate(c.at(row, column)), sum, bound) << "element " << row << ", " << column;
      }
      for (int64_t gap = 0; gap < Target<T>::kGap; ++gap) {
        ASSERT_EQ(to_accumulate(c.at(row, of.n + gap)), to_accumulate(before)) << "behind row " << row;
      }
    }
  }
};

// Around a block of 32 either way, and around what is summed at once: 768 of k, 512 of more.
TEST_P(MatrixProductTest, EqualsDirectSumsAtAllEdges) {
  for (const auto& [m, n, k] :
       {std::tuple{1, 1, 2}, {31, 33, 30}, {32, 32, 32}, {33, 31, 34}, {65, 40, 766}, {40, 65, 770}, {3, 70, 1100}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        expect_product<float>({m, n, k}, a_transposed, b_transposed, a_transposed);
        expect_product<bfloat16>({m, n, k}, a_transposed, b_transposed, false);
      }
    }
  }
  expect_product<float>({33, 31, 67}, true, false, true);  // a last row of both without a partner
  expect_product<bfloat16>({33, 31, 67}, false, false, false);
}

// Of each way of cutting: the cut is asked, so that a test that no longer meets it fails.
TEST_P(MatrixProductTest, EqualsDirectSumsHoweverItIsCut) {
  using enum MatrixProductCut::Order;
  const auto expect_cut = [&](int threads, const Extents& of, MatrixProductCut::Order order, bool several_depths,
                              bool several_groups) {
    const MatrixProductCut cut(threads, of.m, of.n, of.k);
    EXPECT_EQ(cut.order, order) << text_of(of);
    EXPECT_EQ(cut.depths > 1, several_depths) << text_of(of);
    EXPECT_EQ(cut.groups > 1, several_groups) << text_of(of);
    expect_product<float>(of, true, false, true, threads);
    expect_product<bfloat16>(of, false, true, false, threads);
  };
  expect_cut(1, {300, 33, 34}, strips, false, false);
  expect_cut(1, {40, 530, 760}, strips, false, true);  // of more panels than a second-level cache holds
  expect_cut(2, {40, 100, 34}, strips, false, true);
  expect_cut(1, {300, 2, 770}, whole_rows, true, false);
  expect_cut(2, {40, 100, 770}, whole_rows, true, true);
  expect_cut(1, {40, 2, 3110}, parts_of_rows, true, false);
  expect_cut(2, {3, 70, 3110}, parts_of_rows, true, true);
  expect_cut(2, {571, 2, 3110}, parts_of_rows, true, false);
  EXPECT_EQ(MatrixProductCut(2, 571, 2, 3110).row_tasks, 4);  // of 18 blocks, where 3 tasks would do
}

TEST_P(MatrixProductTest, BitsDoNotDependOnThreads) {
  for (const Extents of : {Extents{70, 70, 560}, Extents{70, 70, 800}, Extents{3, 66, 3110}}) {
    const Operand a("a", of.m, of.k, false), b("b", of.k, of.n, true);
    Target<float> one(of, 0.5f);
    multiply(1, of, a, b, true, one);
    for (const int threads : {2, 8}) {
      Target<float> several(of, 0.5f);
      multiply(threads, of, a, b, true, several);
      EXPECT_EQ(several.values, one.values) << threads << " threads, " << text_of(of);
    }
  }
}

TEST_P(MatrixProductTest, LeavesWhatItCannotDo) {
  const Operand a("a", 4, 3, false), b("b", 3, 4, true);  // pairs of three elements
  Target<float> c({4, 4, 3}, 1.0f);
  std::vector<bfloat16> room(1 << 16);
  const MatrixProduct product = {1,
                                 4,
                                 4,
                                 3,
                                 a.matrix(),
                                 b.matrix(),
                                 false,
                                 c.values.data(),
                                 DType::float32,
                                 c.stride,
                                 Tensor(room.data(), DType::bfloat16, {1 << 16}, DeviceKind::cpu)};
  EXPECT_FALSE(fast::multiply_by_matrix_unit(GetParam(), product));
  EXPECT_FALSE(fast::multiply_by_matrix_unit(ProductsBy::library, product));
  EXPECT_EQ(c.values, Target<float>({4, 4, 3}, 1.0f).values);
  const Operand whole("b", 3, 4, false);
  MatrixProduct without_room = product;
  without_room.b = whole.matrix();
  without_room.room = Tensor(room.data(), DType::bfloat16, {1}, DeviceKind::cpu);
  expect_fault("needs more scratch than 2", [&] { fast::multiply_by_matrix_unit(GetParam(), without_room); });
}

INSTANTIATE_TEST_SUITE_P(Units, MatrixProductTest, ::testing::Values(ProductsBy::tiles, ProductsBy::tile_loops),
                         [](const ::testing::TestParamInfo<ProductsBy>& parameter) {
                           return std::string(parameter.param == ProductsBy::tiles ? "instructions" : "loops");
                         });

}  // namespace
}  // namespace shiftron::kernel_testing
