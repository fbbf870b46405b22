// Reference implementation of copies and sums.
#include <cstring>

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

void copy(const CpuOptions&, ConstTensor x, Tensor y) {
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

void add(const CpuOptions&, ConstTensor a, ConstTensor b, Tensor y) {
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

void sum_of_squares(const CpuOptions&, const std::vector<Squares>& squares, Tensor sums, Tensor) {
  for (const Squares& of : squares) {
    for_type(of.x.dtype(), [&](auto element) {
      const auto* in = of.x.data<decltype(element)>();
      double total = 0;
      for (int64_t i = 0; i < of.x.count(); ++i) {
        const double value = to_accumulate(in[i]);
        total += value * value;
      }
      sums.data<double>()[of.sum] += total;
    });
  }
}

void fill_zero(const CpuOptions&, Tensor x) {
  if (x.bytes() > 0) std::memset(x.raw(), 0, static_cast<size_t>(x.bytes()));
}

void copy_bytes(const CpuOptions&, ConstTensor x, Tensor y) {
  if (x.bytes() > 0) std::memcpy(y.raw(), x.raw(), static_cast<size_t>(x.bytes()));
}

void sum_columns(const CpuOptions&, ConstTensor x, Tensor sums, Tensor) {
  for_type(x.dtype(), [&](auto element) {
    const auto* in = x.data<decltype(element)>();
    double* out = sums.data<double>();
    for (int64_t i = 0; i < x.extent(0); ++i) {
      for (int64_t j = 0; j < x.extent(1); ++j) {
        out[j] += static_cast<double>(to_accumulate(in[i * x.stride(0) + j]));
      }
    }
  });
}

}  // namespace shiftron::specification
