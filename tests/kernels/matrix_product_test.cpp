// Large products by the matrix unit, and by its plain loops, which need bfloat16 vectors: every way of splitting them,
// edges, memory around, threads. Skipped on processors without these.
#include "kernels/matrix_product.h"

#include <tuple>

#include "kernels/kernel_testing.h"
#include "kernels/matrix_unit.h"
#include "kernels/matrix_unit_emulator.h"
#include "kernels/product_testing.h"
#include "kernels/tile_product.h"

namespace shiftron::kernel_testing {
namespace {

using fast::MatrixProduct;
using fast::MatrixProductCut;

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
        GetParam(), {threads, of.m, of.n, of.k, a.matrix(), b.matrix(), keep, c.values.data(), dtype, c.stride},
        Tensor(room.data(), DType::bfloat16, {bytes / 2}, DeviceKind::cpu)));
  }

  template <typename T>
  void expect_product(const Extents& of, bool a_transposed, bool b_transposed, bool keep, int threads = 2) {
    const auto by_unit = [&](const Operand& a, const Operand& b, Target<T>& c) {
      multiply(threads, of, a, b, keep, c);
    };
    expect_direct_sums<T>(of, a_transposed, b_transposed, keep, by_unit);
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
    expect_bits_of_no_thread(of, false, true, [&](int threads, const Operand& a, const Operand& b, Target<float>& c) {
      multiply(threads, of, a, b, true, c);
    });
  }
}

TEST_P(MatrixProductTest, LeavesWhatItCannotDo) {
  const Operand a("a", 4, 3, false), b("b", 3, 4, true);  // pairs of three elements
  Target<float> c({4, 4, 3}, 1.0f);
  std::vector<bfloat16> room(1 << 16);
  const MatrixProduct product = {1, 4, 4, 3, a.matrix(), b.matrix(), false, c.values.data(), DType::float32, c.stride};
  const auto room_of = [&](int64_t elements) {
    return Tensor(room.data(), DType::bfloat16, {elements}, DeviceKind::cpu);
  };
  EXPECT_FALSE(fast::multiply_by_matrix_unit(GetParam(), product, room_of(1 << 16)));
  EXPECT_FALSE(fast::multiply_by_matrix_unit(ProductsBy::library, product, room_of(1 << 16)));
  EXPECT_EQ(c.values, Target<float>({4, 4, 3}, 1.0f).values);
  const Operand whole("b", 3, 4, false);
  MatrixProduct without_memory = product;
  without_memory.b = whole.matrix();
  expect_fault("needs more scratch than 2",
               [&] { fast::multiply_by_matrix_unit(GetParam(), without_memory, room_of(1)); });
}

INSTANTIATE_TEST_SUITE_P(Units, MatrixProductTest, ::testing::Values(ProductsBy::tiles, ProductsBy::tile_loops),
                         [](const ::testing::TestParamInfo<ProductsBy>& parameter) {
                           return std::string(parameter.param == ProductsBy::tiles ? "instructions" : "loops");
                         });

}  // namespace
}  // namespace shiftron::kernel_testing
