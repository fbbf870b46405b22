// Products of bfloat16 matrices against direct sums in float64: what tests of the CPU's large products share.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_testing.h"
#include "kernels/matrix.h"

namespace shiftron::kernel_testing {

struct Extents {
  int64_t m, n, k;
};

inline std::string text_of(const Extents& of) {
  return std::to_string(of.m) + " × " + std::to_string(of.n) + " × " + std::to_string(of.k);
}

// A matrix of small numbers whose rows lie one after another with NaN between.
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
  fast::Matrix matrix() const { return {values.data(), DType::bfloat16, columns + kGap, transposed}; }
  double at(int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return to_accumulate(values[static_cast<size_t>(row * (columns + kGap) + column)]);
  }
  int64_t rows, columns;
  bool transposed;
  std::vector<bfloat16> values;
};

// Rows of a result; what follows each row must not change.
template <typename T>
struct Target {
  static constexpr int64_t kGap = 3;
  Target(const Extents& of, T before) : stride(of.n + kGap), values(static_cast<size_t>(of.m * stride), before) {}
  T at(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * stride + column)]; }
  int64_t stride;
  std::vector<T> values;
};

// start + Σ term(i) of i < k, and how large what was added is: each rounding is a share of that at most.
struct DirectSum {
  double sum, size;
};
template <typename Term>
DirectSum direct_sum(int64_t k, double start, const Term& term) {
  DirectSum direct{start, std::abs(start)};
  for (int64_t i = 0; i < k; ++i) {
    const double added = term(i);
    direct.sum += added;
    direct.size += std::abs(added);
  }
  return direct;
}

// multiply(a, b, c): c (+)= a · b, of elements that are a quarter before where they are kept.
template <typename T, typename Multiply>
void expect_direct_sums(const Extents& of, bool a_transposed, bool b_transposed, bool keep, const Multiply& multiply) {
  SCOPED_TRACE(text_of(of) + (a_transposed ? ", a transposed" : "") + (b_transposed ? ", b transposed" : ""));
  const Operand a("a", of.m, of.k, a_transposed), b("b", of.k, of.n, b_transposed);
  const T before = T{std::is_same_v<T, float> ? T(0.25f) : T{}};
  Target<T> c(of, before);
  multiply(a, b, c);
  for (int64_t row = 0; row < of.m; ++row) {
    for (int64_t column = 0; column < of.n; ++column) {
      const auto [sum, size] =
          direct_sum(of.k, keep ? to_accumulate(before) : 0, [&](int64_t i) { return a.at(row, i) * b.at(i, column); });
      // Each of the k additions rounds once, and the result; without fused instructions each of the products, too.
      const double rounding = std::is_same_v<T, float> ? 0 : std::abs(sum) / 256;
      const double bound = size * static_cast<double>(of.k + 2) * std::numeric_limits<float>::epsilon() + rounding;
      ASSERT_NEAR(to_accumulate(c.at(row, column)), sum, bound) << "element " << row << ", " << column;
    }
    for (int64_t gap = 0; gap < Target<T>::kGap; ++gap) {
      ASSERT_EQ(to_accumulate(c.at(row, of.n + gap)), to_accumulate(before)) << "after row " << row;
    }
  }
}

// multiply(threads, a, b, c): c += a · b, of elements that are a half before.
template <typename Multiply>
void expect_bits_of_no_thread(const Extents& of, bool a_transposed, bool b_transposed, const Multiply& multiply) {
  const Operand a("a", of.m, of.k, a_transposed), b("b", of.k, of.n, b_transposed);
  Target<float> one(of, 0.5f);
  multiply(1, a, b, one);
  for (const int threads : {2, 8}) {
    Target<float> several(of, 0.5f);
    multiply(threads, a, b, several);
    EXPECT_EQ(several.values, one.values) << threads << " threads, " << text_of(of);
  }
}

}  // namespace shiftron::kernel_testing
