// Front ends of copies and sums, and the bodies of the two that need no fast one.
#include <cstring>

#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/launch.h"

namespace shiftron {

void fill_zero(Stream& stream, Tensor x) {
  constexpr const char* kName = "fill_zero";
  check_argument(stream, kName, "x", x, x.dtype(), x.shape());
  check_contiguous(kName, "x", x);
  const Launch launch(stream, kName, {}, {x}, 0);
  if (!launch.runs()) return;
  if (x.bytes() > 0) std::memset(x.raw(), 0, static_cast<size_t>(x.bytes()));
}

void copy(Stream& stream, ConstTensor x, Tensor y) {
  constexpr const char* kName = "copy";
  check_floating(kName, "x", x);
  check_floating(kName, "y", y);
  check_argument(stream, kName, "x", x, x.dtype(), x.shape());
  check_argument(stream, kName, "y", y, y.dtype(), x.shape());
  const Launch launch(stream, kName, {x}, {y}, 0);
  if (!launch.runs()) return;
  use_fast(stream, x.dtype()) && use_fast(stream, y.dtype()) ? fast::copy(stream, x, y)
                                                             : specification::copy(stream, x, y);
}

void add(Stream& stream, ConstTensor a, ConstTensor b, Tensor y) {
  constexpr const char* kName = "add";
  check_floating(kName, "a", a);
  check_argument(stream, kName, "a", a, a.dtype(), a.shape());
  check_argument(stream, kName, "b", b, a.dtype(), a.shape());
  check_argument(stream, kName, "y", y, a.dtype(), a.shape());
  const Launch launch(stream, kName, {a, b}, {y}, y.count());
  if (!launch.runs()) return;
  use_fast(stream, a.dtype()) ? fast::add(stream, a, b, y) : specification::add(stream, a, b, y);
}

void sum_of_squares(Stream& stream, ConstTensor x, InOut sum) {
  constexpr const char* kName = "sum_of_squares";
  check_floating(kName, "x", x);
  check_argument(stream, kName, "x", x, accumulation_type(x.dtype()), x.shape());
  check_contiguous(kName, "x", x);
  check_argument(stream, kName, "sum", sum.tensor, DType::float64, {1});
  const Launch launch(stream, kName, {x, sum.tensor}, {sum.tensor}, 2 * x.count());
  if (!launch.runs()) return;
  use_fast(stream, x.dtype()) ? fast::sum_of_squares(stream, x, sum.tensor)
                              : specification::sum_of_squares(stream, x, sum.tensor);
}

void sum_columns(Stream& stream, ConstTensor x, InOut sums) {
  constexpr const char* kName = "sum_columns";
  check_floating(kName, "x", x);
  check_dims(kName, "x", x, 2);
  check_argument(stream, kName, "x", x, accumulation_type(x.dtype()), x.shape());
  check_argument(stream, kName, "sums", sums.tensor, DType::float64, {x.extent(1)});
  const Launch launch(stream, kName, {x, sums.tensor}, {sums.tensor}, x.count());
  if (!launch.runs()) return;
  for_type(x.dtype(), [&](auto element) {
    const auto* in = x.data<decltype(element)>();
    double* out = sums.tensor.data<double>();
    for (int64_t i = 0; i < x.extent(0); ++i) {
      for (int64_t j = 0; j < x.extent(1); ++j) {
        out[j] += static_cast<double>(to_accumulate(in[i * x.stride(0) + j]));
      }
    }
  });
}

}  // namespace shiftron
