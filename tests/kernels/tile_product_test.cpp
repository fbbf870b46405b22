// Small products by every kernel: edges, memory around, faults. Kernels that do not run here are skipped; the matrix
// unit's loops need bfloat16 vectors, which their packing uses.
#include "kernels/tile_product.h"

#include <limits>
#include <tuple>

#include "kernels/all_cases.h"
#include "kernels/choose_products.h"
#include "kernels/kernel_testing.h"
#include "kernels/matrix_unit.h"
#include "kernels/matrix_unit_emulator.h"
#include "kernels/product_testing.h"
#include "kernels/weight_gradient.h"

namespace shiftron::kernel_testing {
namespace {

using fast::LeftTile;
using fast::TileBody;

constexpr float kUntouched = 1234.5f;
const uint32_t kNanWord = 0x7fc07fc0;

// Of each, also where it does not run: it is skipped there, and said to be.
class OfABody : public ::testing::TestWithParam<ProductsBy> {
 protected:
  void SetUp() override {
    if (fast::tile_body(GetParam()) == nullptr) GTEST_SKIP() << "no bfloat16 vectors, or no such unit, here";
  }
};
const auto kBodies = ::testing::Values(ProductsBy::vectors, ProductsBy::tiles, ProductsBy::tile_loops);

std::string name_of_body(const ::testing::TestParamInfo<ProductsBy>& parameter) {
  std::string name = name_of(parameter.param);
  std::ranges::replace(name, ' ', '_');
  return name;
}

class TileProduct : public OfABody {
 protected:
  const TileBody& body() const { return *fast::tile_body(GetParam()); }
};

bfloat16 half_of(uint32_t word, bool high) {
  return {static_cast<uint16_t>(high ? word >> 16 : word & 0xffff)};
}

// Words of two random halves in [rows, columns], rows `stride` apart, NaN between and after them.
std::vector<uint32_t> random_words(const std::string& name, int64_t rows, int64_t columns, int64_t stride) {
  const std::vector<double> values = random_values(name, 2 * rows * columns);
  std::vector<uint32_t> words(static_cast<size_t>(rows * stride), kNanWord);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto bits = [&](int64_t at) {
      return uint32_t{to_bfloat16(static_cast<float>(values[static_cast<size_t>(at)])).bits};
    };
    words[static_cast<size_t>(i / columns * stride + i % columns)] = bits(2 * i) | bits(2 * i + 1) << 16;
  }
  return words;
}

// What c [m, n] holds before a product, NaN where it is not kept; after each row a number that must stay.
std::vector<float> kept_sums(int64_t m, int64_t n, bool keep) {
  std::vector<float> c(static_cast<size_t>(m * (n + 1)), kUntouched);
  for (int64_t i = 0; i < m * n; ++i) {
    c[static_cast<size_t>(i / n * (n + 1) + i % n)] =
        keep ? 0.25f * static_cast<float>(i % 5) : std::numeric_limits<float>::quiet_NaN();
  }
  return c;
}

// That `c`, of kept_sums, is the product of left(row, depth) and right(depth, column), each sum rounded so many times.
template <typename Left, typename Right>
void expect_direct_sums(int64_t m, int64_t n, int64_t k, bool keep, int64_t roundings, const std::vector<float>& c,
                        const Left& left, const Right& right) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      const double start = keep ? 0.25 * static_cast<double>((row * n + column) % 5) : 0;
      const auto [sum, size] = direct_sum(k, start, [&](int64_t depth) {
        return static_cast<double>(left(row, depth)) * static_cast<double>(right(depth, column));
      });
      const double bound = size * static_cast<double>(roundings) * std::numeric_limits<float>::epsilon();
      ASSERT_NEAR(c[static_cast<size_t>(row * (n + 1) + column)], sum, bound)
          << m << " × " << n << " × " << k << ", element " << row << ", " << column;
    }
    ASSERT_EQ(c[static_cast<size_t>(row * (n + 1) + n)], kUntouched) << "after row " << row;
  }
}

void expect_product(const TileBody& body, int64_t m, int64_t n, int64_t pairs, bool keep) {
  const int64_t a_stride = pairs + 3, b_stride = n + 5;
  const auto a = random_words("a", m, pairs, a_stride), b = random_words("b", pairs, n, b_stride);
  std::vector<float> c = kept_sums(m, n, keep);
  body.product(m, n, pairs, {a.data(), a_stride, 1}, b.data(), b_stride, keep, c.data(), n + 1);
  // Each of the additions rounds once.
  expect_direct_sums(
      m, n, 2 * pairs, keep, 2 * pairs + 1, c,
      [&](int64_t row, int64_t depth) {
        return to_accumulate(half_of(a[static_cast<size_t>(row * a_stride + depth / 2)], depth % 2 == 1));
      },
      [&](int64_t depth, int64_t column) {
        return to_accumulate(half_of(b[static_cast<size_t>(depth / 2 * b_stride + column)], depth % 2 == 1));
      });
}

// Around the extents of one tile and of two, and of what is summed before c is touched again.
TEST_P(TileProduct, EqualsDirectSumsAtAllEdges) {
  for (const int64_t m : {1, 15, 16, 17, 31, 32, 33, 50}) {
    for (const int64_t n : {1, 15, 16, 17, 33, 64, 70}) {
      for (const int64_t pairs : {0, 1, 15, 16, 17, 40}) expect_product(body(), m, n, pairs, (m + n + pairs) % 2 == 0);
    }
  }
  for (const int64_t pairs : {255, 256, 257, 600}) expect_product(body(), 33, 47, pairs, false);
}

// The bits of an element do not depend on the block that it is in.
TEST_P(TileProduct, ElementsStandForThemselves) {
  constexpr int64_t kM = 40, kN = 70, kPairs = 37;
  const auto a = random_words("a", kM, kPairs, kPairs), b = random_words("b", kPairs, kN, kN);
  std::vector<float> whole(kM * kN), part(kM * kN);
  body().product(kM, kN, kPairs, {a.data(), kPairs, 1}, b.data(), kN, false, whole.data(), kN);
  for (int64_t row = 0; row < kM; row += 7) {
    const int64_t rows = std::min<int64_t>(7, kM - row);
    for (int64_t column = 0; column < kN; column += 9) {
      body().product(rows, std::min<int64_t>(9, kN - column), kPairs, {a.data() + row * kPairs, kPairs, 1},
                     b.data() + column, kN, false, part.data() + row * kN + column, kN);
    }
  }
  EXPECT_EQ(whole, part);
}

// Odd rows, and columns that are no block.
TEST_P(TileProduct, PacksATransposedOperand) {
  constexpr int64_t kStride = 80;
  for (const int64_t rows : {1, 2, 31, 32, 33, 67}) {
    for (const int64_t m : {1, 16, 63, 65}) {
      const auto words = random_words("from", rows, kStride / 2, kStride / 2);
      const auto* from = reinterpret_cast<const bfloat16*>(words.data());
      std::vector<uint32_t> room(static_cast<size_t>(fast::packed_words(rows, m)), kNanWord);
      const LeftTile left = fast::pack_transposed(body(), from, kStride, rows, m, room.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t row = 0; row < rows + rows % 2; ++row) {
          const uint32_t word =
              static_cast<const uint32_t*>(left.words)[i * left.row_stride + row / 2 * left.pair_stride];
          const uint16_t expected = row < rows ? from[row * kStride + i].bits : uint16_t{0};
          ASSERT_EQ(half_of(word, row % 2 == 1).bits, expected) << rows << " rows, row " << row << ", column " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, TileProduct, kBodies, name_of_body);

// Random floats in [rows, columns], rows `stride` apart, NaN between and after them.
std::vector<float> random_floats(const std::string& name, int64_t rows, int64_t columns, int64_t stride) {
  const std::vector<double> values = random_values(name, rows * columns);
  std::vector<float> floats(static_cast<size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < rows * columns; ++i) {
    floats[static_cast<size_t>(i / columns * stride + i % columns)] =
        static_cast<float>(values[static_cast<size_t>(i)]);
  }
  return floats;
}

// a is read by rows and, where it is transposed, by columns.
void expect_product_float32(int64_t m, int64_t n, int64_t k, bool transposed, bool keep) {
  const int64_t a_stride = (transposed ? m : k) + 3, b_stride = n + 5;
  const auto a = transposed ? random_floats("a", k, m, a_stride) : random_floats("a", m, k, a_stride);
  const auto b = random_floats("b", k, n, b_stride);
  const fast::LeftFloats left{a.data(), transposed ? 1 : a_stride, transposed ? a_stride : 1};
  std::vector<float> c = kept_sums(m, n, keep);
  fast::tile_product_float32(m, n, k, left, b.data(), b_stride, keep, c.data(), n + 1);
  // Without fused instructions each of the k products rounds, too, by half a unit as the additions do.
  expect_direct_sums(
      m, n, k, keep, k + 2, c,
      [&](int64_t row, int64_t depth) {
        return a[static_cast<size_t>(row * left.row_stride + depth * left.depth_stride)];
      },
      [&](int64_t depth, int64_t column) { return b[static_cast<size_t>(depth * b_stride + column)]; });
}

// Around the extents of blocks, vectors and panels of every length, and of what is summed before c is touched again.
TEST(TileProductFloat32, EqualsDirectSumsAtAllEdges) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 25}) {
    for (const int64_t n : {1, 3, 4, 8, 9, 15, 16, 17, 32, 63, 64, 70, 81}) {
      for (const int64_t k : {0, 1, 2, 33}) expect_product_float32(m, n, k, (m + n) % 2 == 0, (m + n + k) % 3 == 0);
    }
  }
  for (const int64_t k : {95, 96, 97, 200, 385}) {
    for (const int64_t n : {1, 16, 47, 64, 100}) expect_product_float32(14, n, k, n % 2 == 0, k % 2 == 0);
  }
}

TEST(TileProductFloat32, ElementsStandForThemselves) {
  constexpr int64_t kM = 27, kN = 140, kK = 213;
  const auto a = random_floats("a", kM, kK, kK), b = random_floats("b", kK, kN, kN);
  std::vector<float> whole(kM * kN), part(kM * kN);
  fast::tile_product_float32(kM, kN, kK, {a.data(), kK, 1}, b.data(), kN, false, whole.data(), kN);
  for (int64_t row = 0; row < kM; row += 7) {
    const int64_t rows = std::min<int64_t>(7, kM - row);
    for (int64_t column = 0; column < kN; column += 9) {
      fast::tile_product_float32(rows, std::min<int64_t>(9, kN - column), kK, {a.data() + row * kK, kK, 1},
                                 b.data() + column, kN, false, part.data() + row * kN + column, kN);
    }
  }
  EXPECT_EQ(whole, part);
}

TEST(TileProductFloat32, TransposesWhatItCannotRead) {
  for (const int64_t rows : {1, 3, 4, 8, 15, 16, 17, 48, 50}) {
    for (const int64_t columns : {1, 4, 7, 8, 16, 31, 32, 64, 65}) {
      const int64_t stride = columns + 3, to_stride = rows + 2;
      const auto from = random_floats("from", rows, columns, stride);
      std::vector<bfloat16> narrow;
      for (const float value : from) narrow.push_back(to_bfloat16(value));
      std::vector<float> to(static_cast<size_t>(columns * to_stride), kUntouched), of_narrow = to;
      fast::transpose_float32(from.data(), stride, rows, columns, to.data(), to_stride);
      fast::transpose_float32(narrow.data(), stride, rows, columns, of_narrow.data(), to_stride);
      for (int64_t i = 0; i < columns * to_stride; ++i) {
        const auto at = static_cast<size_t>(i);
        const int64_t row = i % to_stride;
        const auto source = static_cast<size_t>(row * stride + i / to_stride);
        ASSERT_EQ(to[at], row < rows ? from[source] : kUntouched) << rows << " × " << columns << ", " << i;
        ASSERT_EQ(of_narrow[at], row < rows ? to_accumulate(narrow[source]) : kUntouched);
      }
    }
  }
}

// Every product that own tiles can make, by the matrix unit's: the processor's own where it has one.
class ByMatrixUnit : public OfABody {
 protected:
  static std::vector<KernelCase> cases() {
    std::vector<KernelCase> chosen;
    std::vector<KernelCase> all = all_cases();
    add_matmul_cases(all, 300, 38, 71);
    add_matmul_cases(all, 257, 130, 24);
    add_matmul_cases(all, 65, 38, 144);
    for (KernelCase& call : all) {
      if (!call.name.starts_with("matmul") && !call.name.starts_with("attention")) continue;
      chosen.push_back(made_by(GetParam(), std::move(call)));
    }
    return chosen;
  }
};

TEST_P(ByMatrixUnit, ProductsMatchTheSpecification) {
  for (const KernelCase& call : cases()) {
    SCOPED_TRACE(call.name);
    expect_fast_matches_specification(call, DType::bfloat16, 3);
  }
}

TEST(WeightGradient, TasksHaveFewerRowsWhereThreadsThenEndEarlier) {
  const auto rows_of_task = fast::WeightGradientSizes::rows_of_task;
  EXPECT_EQ(rows_of_task(1, 144), 48);
  EXPECT_EQ(rows_of_task(2, 144), 36);  // 4 tasks, not 3: 72 rows of a thread, not 96
  EXPECT_EQ(rows_of_task(2, 512), 48);
  EXPECT_EQ(rows_of_task(8, 512), 36);
  EXPECT_EQ(rows_of_task(16, 512), 36);
  EXPECT_EQ(rows_of_task(64, 16), 24);
}

INSTANTIATE_TEST_SUITE_P(Bodies, ByMatrixUnit, kBodies, name_of_body);

// By the processor's own unit, or one by one by the loops.
TEST(MatrixUnit, InstructionsDoWhatTheLoopsDo) {
  const TileBody* instructions = fast::matrix_instructions();
  if (instructions == nullptr) GTEST_SKIP() << "of another architecture";
  if (fast::processor_has_matrix_unit() && !fast::matrix_unit_available()) {
    GTEST_SKIP() << "the processor has the unit, and this build or process may not use it";
  }
  const EmulatedMatrixUnit emulated;
  for (const auto& [m, n, pairs] :
       {std::tuple{1, 1, 1}, {16, 16, 16}, {17, 33, 15}, {32, 32, 48}, {40, 24, 20}, {50, 70, 300}}) {
    for (const bool keep : {false, true}) expect_product(*instructions, m, n, pairs, keep);
  }
}

TEST(MatrixUnit, UsesThatTheProcessorRefusesAreFaults) {
  fast::MatrixUnitLoops unit;
  expect_fault("tile 0 of the matrix unit is used without a configuration", [&] { unit.zero<0>(); });
  fast::TileConfiguration configuration;
  for (const size_t tile : {0, 1, 2}) {
    configuration.rows[tile] = 4;
    configuration.row_bytes[tile] = 32;
  }
  unit.configure(configuration);
  expect_fault("the matrix unit cannot multiply [4, 8] by [4, 8] to [4, 8]", [&] { unit.multiply<0, 1, 2>(); });
  expect_fault("tile 3", [&] { unit.zero<3>(); });
  expect_fault("still configured", [] { fast::MatrixUnitLoops(); });
  unit.release();
  expect_fault("tile 0", [&] { unit.zero<0>(); });
  configuration.rows[2] = 17;
  expect_fault("tile 2 of the matrix unit cannot have 17 rows of 32 bytes", [&] { unit.configure(configuration); });
  unit.release();
}

TEST(ProductChoices, OfACpuAreAmongWhatIsAskedFor) {
  const TypicalProduct typical{.rows = 300, .in = 96, .out = 130, .head_dim = 64};
  const std::vector<ProductsBy> here = products_here();
  const FastestProducts found = fastest_products({.threads = 2}, here, typical);
  for (const ProductsBy by : {found.by.forward, found.by.to_input, found.by.to_weight, found.by.attention}) {
    EXPECT_NE(std::ranges::find(here, by), here.end()) << name_of(by);
    EXPECT_EQ(products_by(name_of(by)), by);
  }
  EXPECT_GT(found.rates.forward, 1e6);
  EXPECT_NE(found.text().find("to weight by "), std::string::npos) << found.text();
  const std::vector<ProductsBy> one = {ProductsBy::float32};
  EXPECT_EQ(fastest_products({}, one, typical).by,
            (Bfloat16Products{ProductsBy::float32, ProductsBy::float32, ProductsBy::float32, ProductsBy::float32}));
  EXPECT_EQ(fastest_products({.bodies = Bodies::specification}, here, typical).by.forward, ProductsBy::float32);
  EXPECT_EQ(fastest_products({}, here, {}).by, untimed_products(here));
  EXPECT_EQ(products_by("abacus"), std::nullopt);
}

}  // namespace
}  // namespace shiftron::kernel_testing
