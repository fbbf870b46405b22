// Large products in float32 of widened bfloat16: every way of splitting them, edges, memory around, threads.
#include "kernels/widened_product.h"

#include <tuple>

#include "kernels/product_testing.h"

namespace shiftron::kernel_testing {
namespace {

template <typename T>
void multiply(int threads, const Extents& of, const Operand& a, const Operand& b, bool keep, Target<T>& c) {
  const DType dtype = std::is_same_v<T, float> ? DType::float32 : DType::bfloat16;
  fast::multiply_widened({threads, of.m, of.n, of.k, a.matrix(), b.matrix(), keep, c.values.data(), dtype, c.stride});
}

template <typename T>
void expect_product(const Extents& of, bool a_transposed, bool b_transposed, bool keep, int threads = 2) {
  expect_direct_sums<T>(of, a_transposed, b_transposed, keep, [&](const Operand& a, const Operand& b, Target<T>& c) {
    multiply(threads, of, a, b, keep, c);
  });
}

// Around the extents of tiles, of a task's rows, of panels of every length, and of what a task takes of k at once.
TEST(WidenedProduct, EqualsDirectSumsAtAllEdges) {
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1},
                                {5, 7, 3},
                                {6, 8, 8},
                                {25, 17, 33},
                                {96, 16, 255},
                                {97, 65, 257},
                                {13, 63, 520},
                                {200, 130, 20}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        expect_product<float>({m, n, k}, a_transposed, b_transposed, a_transposed != b_transposed);
        expect_product<bfloat16>({m, n, k}, a_transposed, b_transposed, false);
      }
    }
  }
}

// Of more columns than b's part has, whose sums c holds or cannot, and of more depth than is summed at once.
TEST(WidenedProduct, EqualsDirectSumsWherePartsOfBTakeTurns) {
  expect_product<float>({7, 1030, 9}, false, true, true);
  expect_product<float>({7, 1030, 9}, false, false, false);
  expect_product<bfloat16>({7, 520, 9}, false, true, false);
  expect_product<float>({30, 40, 2060}, true, false, true);
  expect_product<float>({30, 40, 4100}, true, false, false);
  expect_product<bfloat16>({30, 40, 2060}, false, true, false);
  // Of more tasks than threads, so that a thread holds the sums of another one in between.
  expect_product<bfloat16>({200, 40, 2060}, false, true, false);
}

// Of fewer rows than threads have tasks, which divide the panels then.
TEST(WidenedProduct, BitsDependOnNoThread) {
  for (const Extents of : {Extents{9, 300, 300}, Extents{130, 70, 2100}, Extents{70, 1, 40}}) {
    for (const bool transposed : {false, true}) {
      expect_bits_of_no_thread(of, transposed, !transposed,
                               [&](int threads, const Operand& a, const Operand& b, Target<float>& c) {
                                 multiply(threads, of, a, b, true, c);
                               });
    }
  }
}

TEST(WidenedProduct, ElementsStandForThemselves) {
  const Extents whole{100, 700, 300};
  const Operand a("a", whole.m, whole.k, false), b("b", whole.k, whole.n, false);
  Target<float> all(whole, 0.0f);
  multiply(2, whole, a, b, false, all);
  fast::Matrix right = b.matrix();
  right.data = b.values.data() + 513;  // its columns from there, of which the first is a panel's first now
  Target<float> part({50, 187, 300}, 0.0f);
  fast::multiply_widened({2, 50, 187, 300, a.matrix(), right, false, part.values.data(), DType::float32, part.stride});
  for (int64_t row = 0; row < 50; ++row) {
    for (int64_t column = 0; column < 187; ++column) {
      ASSERT_EQ(part.at(row, column), all.at(row, 513 + column)) << row << ", " << column;
    }
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
