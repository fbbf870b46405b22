// Reference implementation of the RMS norm (Zhang and Sennrich 2019) and its gradient.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {

void rms_norm_forward(const CpuOptions&, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms) {
  for_type(x.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const int64_t hidden = x.extent(1);
    const A* scale = w.data<A>();
    for (int64_t row = 0; row < x.extent(0); ++row) {
      const T* in = x.data<T>() + row * x.stride(0);
      T* out = y.data<T>() + row * y.stride(0);
      A squares = 0;
      for (int64_t j = 0; j < hidden; ++j) squares += to_accumulate(in[j]) * to_accumulate(in[j]);
      const A r = A{1} / std::sqrt(squares / static_cast<A>(hidden) + static_cast<A>(epsilon));
      inverse_rms.data<A>()[row] = r;
      for (int64_t j = 0; j < hidden; ++j) out[j] = round_to<T>(to_accumulate(in[j]) * r * scale[j]);
    }
  });
}

void add_rms_norm_forward(const CpuOptions& cpu, ConstTensor residual, Tensor x, ConstTensor w, double epsilon,
                          Tensor y, Tensor inverse_rms) {
  add(cpu, residual, x, x);
  rms_norm_forward(cpu, x, w, epsilon, y, inverse_rms);
}

void rms_norm_backward(const CpuOptions&, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms, Tensor d_x,
                       Tensor d_w, Tensor scratch) {
  for_type(x.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const int64_t hidden = x.extent(1);
    if (x.count() == 0) return;
    const A* scale = w.data<A>();
    A* sums = scratch.data<A>();
    for (int64_t j = 0; j < hidden; ++j) sums[j] = 0;
    for (int64_t row = 0; row < x.extent(0); ++row) {
      const T* in = x.data<T>() + row * x.stride(0);
      const T* d_out = d_y.data<T>() + row * d_y.stride(0);
      T* d_in = d_x.data<T>() + row * d_x.stride(0);
      const A r = inverse_rms.data<A>()[row];
      A mean = 0;
      for (int64_t j = 0; j < hidden; ++j) mean += scale[j] * to_accumulate(d_out[j]) * to_accumulate(in[j]);
      mean /= static_cast<A>(hidden);
      for (int64_t j = 0; j < hidden; ++j) {
        const A d = to_accumulate(d_out[j]);
        const A value = to_accumulate(in[j]);
        sums[j] += d * value * r;
        d_in[j] = round_to<T>(to_accumulate(d_in[j]) + r * (scale[j] * d - value * r * r * mean));
      }
    }
    for (int64_t j = 0; j < hidden; ++j) d_w.data<A>()[j] += sums[j];
  });
}

}  // namespace shiftron::specification
