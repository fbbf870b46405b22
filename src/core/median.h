// The median of a few numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace shiftron {

// For an even count, the upper of the two in the middle; `values` must not be empty.
inline double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace shiftron
