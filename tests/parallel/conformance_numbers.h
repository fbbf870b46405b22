// Numbers for the conformance checks, and serial references of a reduction, written without the code under test.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/communicator.h"

namespace shiftron::conformance {

// The number that rank `rank` holds at `index`: magnitudes so different that the order of adding shows.
inline double number(int rank, int64_t index) {
  uint64_t bits = static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15u;
  bits += static_cast<uint64_t>(rank + 1) * 0xBF58476D1CE4E5B9u;
  bits ^= bits >> 31;
  bits *= 0x94D049BB133111EBu;
  bits ^= bits >> 29;
  const double fraction = static_cast<double>(bits >> 11) * 0x1p-53 - 0.5;
  return std::ldexp(fraction, static_cast<int>(bits % 23));
}

// Nearest bfloat16 by comparing distances to both neighbours; a tie goes to the even one.
inline bfloat16 nearest_bfloat16(double value) {
  const uint32_t low = std::bit_cast<uint32_t>(static_cast<float>(value)) & 0xffff0000u;  // towards zero
  const double to_below = std::abs(value - std::bit_cast<float>(low));
  const double to_above = std::abs(value - std::bit_cast<float>(low + 0x10000u));
  const bool up = to_above < to_below || (to_above == to_below && (low & 0x10000u) != 0);
  return {static_cast<uint16_t>((up ? low + 0x10000u : low) >> 16)};
}

template <typename T>
T convert(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return nearest_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<uint8_t>(static_cast<int64_t>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
auto widen(T value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return std::bit_cast<float>(uint32_t{value.bits} << 16);
  } else {
    return value;
  }
}

template <typename T>
std::vector<T> numbers(int rank, int64_t count) {
  std::vector<T> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) result[static_cast<size_t>(i)] = convert<T>(number(rank, i));
  return result;
}

// Serial reference over ranks 0 .. size - 1 in this order, or backwards, from element `begin` on.
template <typename T>
std::vector<T> reduced(int size, int64_t begin, int64_t count, Reduction reduction, bool backwards = false) {
  std::vector<T> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    auto total = widen(convert<T>(number(backwards ? size - 1 : 0, begin + i)));
    for (int step = 1; step < size; ++step) {
      const auto next = widen(convert<T>(number(backwards ? size - 1 - step : step, begin + i)));
      total = reduction == Reduction::sum ? static_cast<decltype(total)>(total + next) : std::max(total, next);
    }
    if constexpr (std::is_same_v<T, bfloat16>) {
      result[static_cast<size_t>(i)] = nearest_bfloat16(total);
    } else {
      result[static_cast<size_t>(i)] = total;
    }
  }
  return result;
}

template <typename T>
Tensor tensor_of(std::vector<T>& values) {
  return Tensor(values.data(), DTypeOf<T>::value, Shape{static_cast<int64_t>(values.size())}, DeviceKind::cpu);
}

template <typename T>
void expect_same(const std::vector<T>& found, const std::vector<T>& expected, const std::string& what) {
  CHECK(found.size() == expected.size(), what, ": ", found.size(), " elements instead of ", expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(std::memcmp(&found[i], &expected[i], sizeof(T)) == 0, what, ": element ", i, " of ", found.size(), " is ",
          +widen(found[i]), " instead of ", +widen(expected[i]));
  }
}

// A sum in any order: as near to the serial one in float64 as adding `size` values in the accumulation type of T and
// rounding once to T can be.
template <typename T>
void expect_near_sum(const std::vector<T>& found, int size, int64_t begin, const std::string& what) {
  constexpr double kAdding =
      std::numeric_limits<std::conditional_t<std::is_same_v<T, double>, double, float>>::epsilon();
  constexpr double kRounding = std::is_same_v<T, bfloat16> ? 0x1p-8 : kAdding / 2;
  for (size_t i = 0; i < found.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (int rank = 0; rank < size; ++rank) {
      const double value = widen(convert<T>(number(rank, begin + static_cast<int64_t>(i))));
      sum += value;
      magnitude += std::abs(value);
    }
    const double adding = size * kAdding * magnitude;
    const double bound = adding + kRounding * (std::abs(sum) + adding);
    const double distance = std::abs(widen(found[i]) - sum);
    CHECK(distance <= bound, what, ": element ", i, " of ", found.size(), " is ", +widen(found[i]), ", ", distance,
          " off the sum, where ", bound, " is allowed");
  }
}

// Throws where `call` does not throw an Error that contains `text`.
template <typename Call>
void expect_error(const Call& call, const std::string& text) {
  std::string found = "nothing";
  try {
    call();
  } catch (const Error& error) {
    found = error.what();
  }
  CHECK(found.find(text) != std::string::npos, "expected an error with '", text, "', found: ", found);
}

}  // namespace shiftron::conformance
