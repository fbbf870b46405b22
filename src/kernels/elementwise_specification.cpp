// Specification of copies and sums.
#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
namespace {

int64_t last_extent(const ConstTensor& x) {
  return x.dims() == 0 ? 1 : x.extent(x.dims() - 1);
}
int64_t row_count(const ConstTensor& x) {
  return x.count() == 0 ? 0 : x.count() / last_extent(x);
}

}  // namespace

void copy(Stream&, ConstTensor x, Tensor y) {
  for_type(x.dtype(), [&](auto from) {
    for_type(y.dtype(), [&](auto to) {
      using To = decltype(to);
      for (int64_t row = 0; row < row_count(x); ++row) {
        const auto* in = x.data<decltype(from)>() + row_offset(x, row);
        To* out = y.data<To>() + row_offset(y, row);
        for (int64_t j = 0; j < last_extent(x); ++j) out[j] = round_to<To>(to_accumulate(in[j]));
      }
    });
  });
}

void add(Stream&, ConstTensor a, ConstTensor b, Tensor y) {
  for_type(a.dtype(), [&](auto element) {
    using T = decltype(element);
    for (int64_t row = 0; row < row_count(a); ++row) {
      const T* left = a.data<T>() + row_offset(a, row);
      const T* right = b.data<T>() + row_offset(b, row);
      T* out = y.data<T>() + row_offset(y, row);
      for (int64_t j = 0; j < last_extent(a); ++j)
        out[j] = round_to<T>(to_accumulate(left[j]) + to_accumulate(right[j]));
    }
  });
}

void sum_of_squares(Stream&, ConstTensor x, Tensor sum) {
  for_type(x.dtype(), [&](auto element) {
    const auto* in = x.data<decltype(element)>();
    double total = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      const double value = to_accumulate(in[i]);
      total += value * value;
    }
    *sum.data<double>() += total;
  });
}

}  // namespace shiftron::specification
