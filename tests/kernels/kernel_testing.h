// What kernel tests share: expectations of values, faults, gradients by finite differences, and outcomes of calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/philox.h"
#include "kernels/element.h"
#include "kernels/kernel_call.h"
#include "kernels/kernel_cases.h"
#include "kernels/kernels.h"

namespace shiftron::kernel_testing {

inline Owned random_tensor(const std::string& name, Shape shape, double scale = 1, double mean = 0) {
  return Owned(DType::float64, shape, random_values(name, shape.count(), scale, mean));
}
inline Owned integers(const std::vector<int64_t>& values) {
  return Owned(DType::int32, {static_cast<int64_t>(values.size())}, std::vector<double>(values.begin(), values.end()));
}

// Of the n-th step: learning rate, gradient factor, bias corrections of moments 0.9 and 0.95, nothing skipped.
inline std::vector<double> update_scalars(int step) {
  return {1e-2, 0.5, 1 - std::pow(0.9, step), 1 - std::pow(0.95, step), 0};
}
// The same update of other tensors: masters in halves, moments of their own.
inline AdamWParameter in_halves(AdamWParameter whole, const Tensor& weight, const Tensor& rest,
                                const Tensor& first_moment, const Tensor& second_moment) {
  whole.weight = weight;
  whole.rest = rest;
  whole.first_moment = first_moment;
  whole.second_moment = second_moment;
  return whole;
}

// The call must throw an Error that says `text`.
inline void expect_fault(const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected: " << text;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what() << "\nexpected: " << text;
  }
}

// The text with `to` in place of `from`, where it stands first; it must be there.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  CHECK(place != std::string::npos, "no ", from, " in ", text);
  return text.replace(place, from.size(), to);
}

// ---- gradients ------------------------------------------------------------------------------------------------------
inline double weighted_sum(const Owned& y, const Owned& weights) {
  double sum = 0;
  for (int64_t i = 0; i < y.tensor().count(); ++i) sum += y[i] * weights[i];
  return sum;
}

// Compares `gradient` with central differences of fourth order of loss() by the elements of x. Truncation h⁴ and
// rounding 1e-16 / h balance near h = 1e-3; `tolerance` is relative to the largest element.
inline void expect_gradient(const char* name, const Owned& x, const std::vector<double>& gradient,
                            const std::function<double()>& loss, double tolerance = 1e-8) {
  ASSERT_EQ(static_cast<int64_t>(gradient.size()), x.tensor().count()) << name;
  constexpr double kStep = 1e-3;
  double largest = 1e-3;
  for (const double value : gradient) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < gradient.size(); ++i) {
    double& value = element<double>(x.tensor(), static_cast<int64_t>(i));
    const double before = value;
    const auto at = [&](double step) {
      value = before + step;
      return loss();
    };
    const double difference = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
    value = before;
    EXPECT_NEAR(gradient[i], difference, tolerance * largest) << name << " at " << i;
  }
}

// The specification in `dtype` against itself in float64: a sum of n terms in order rounds at most n times.
inline void expect_specification_rounds_well(const KernelCase& call, DType dtype) {
  const Outcome reference = evaluate(call, {.inputs = dtype});
  const Outcome result = evaluate(call, {.dtype = dtype, .inputs = dtype});
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    if (!is_result(argument)) continue;
    EXPECT_LE(largest_error(result.values[i], reference.values[i]),
              rounding_error(argument, dtype, reference.values[i], argument.terms))
        << call.name << " " << name_of(dtype) << ": " << argument.name;
  }
}

// What a fast body gave, against the float64 specification.
inline void expect_outcome_matches_specification(const KernelCase& call, DType dtype, int64_t padding,
                                                 const Outcome& fast) {
  for (const Comparison& found : compare(call, dtype, padding, fast)) {
    EXPECT_LE(found.error, found.bound) << call.name << " " << name_of(dtype) << ", padding " << padding << ": "
                                        << found.argument << "; specification's error " << found.own << ", floor "
                                        << found.floor;
  }
}

// The same of the body of a device.
inline void expect_fast_matches_specification(const KernelCase& call, DType dtype, int64_t padding,
                                              DeviceKind device = DeviceKind::cpu) {
  const How how{.dtype = dtype, .inputs = dtype, .bodies = Bodies::fast, .device = device, .padding = padding};
  expect_outcome_matches_specification(call, dtype, padding, evaluate(call, how));
}

// The call with all products of bfloat16 made in one way.
inline KernelCase made_by(ProductsBy by, KernelCase call) {
  call.run = [run = call.run, by](Stream& stream, const Tensors& tensors) {
    stream.cpu.bfloat16 = {by, by, by, by};
    run(stream, tensors);
  };
  return call;
}

// The same bits in all results.
inline void expect_same_results(const KernelCase& call, const Outcome& found, const Outcome& expected) {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!is_result(call.arguments[i])) continue;
    EXPECT_EQ(found.values[i], expected.values[i]) << call.name << ": " << call.arguments[i].name;
  }
}

// The same arguments for add_rms_norm_forward and for the two operations that it stands for: x, y, inverse_rms of both.
inline std::vector<KernelCase> sum_and_norm_both_ways(int64_t rows, int64_t hidden) {
  std::vector<KernelCase> both;
  for (const bool fused : {true, false}) {
    Builder b("sum_and_norm");
    b.input("residual", {rows, hidden});
    b.sum("x", {rows, hidden}, 1, Kind::activation);
    b.input("w", {hidden}, Kind::accumulation);
    b.output("y", {rows, hidden}, 1);
    b.output("inverse_rms", {rows}, 1, Kind::accumulation);
    b.call.run = [fused](Stream& s, const Tensors& a) {
      if (fused) return add_rms_norm_forward(s, a[0], InOut(a[1]), a[2], 1e-5, a[3], a[4]);
      add(s, a[0], a[1], a[1]);
      rms_norm_forward(s, a[1], a[2], 1e-5, a[3], a[4]);
    };
    both.push_back(b.call);
  }
  return both;
}

}  // namespace shiftron::kernel_testing
