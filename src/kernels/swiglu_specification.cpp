// Reference implementation of SwiGLU (Shazeer 2020) and its gradient.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
void swiglu_forward(const CpuOptions&, ConstTensor gate, ConstTensor up, Tensor y) {
  for_type(gate.dtype(), [&](auto element) {
    using T = decltype(element);
    for (int64_t row = 0; row < gate.extent(0); ++row) {
      const T* g = gate.data<T>() + row * gate.stride(0);
      const T* u = up.data<T>() + row * up.stride(0);
      T* out = y.data<T>() + row * y.stride(0);
      for (int64_t j = 0; j < gate.extent(1); ++j) {
        const auto value = to_accumulate(g[j]);
        out[j] = round_to<T>(value * sigmoid(value) * to_accumulate(u[j]));
      }
    }
  });
}

// d_up = d_y gate s, d_gate = d_y up s (1 + gate (1 − s)), s = sigmoid(gate); all are read before they are written.
void swiglu_backward(const CpuOptions&, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up, Tensor y) {
  for_type(gate.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    for (int64_t row = 0; row < gate.extent(0); ++row) {
      const T* d_out = d_y.data<T>() + row * d_y.stride(0);
      const T* g = gate.data<T>() + row * gate.stride(0);
      const T* u = up.data<T>() + row * up.stride(0);
      T* d_g = d_gate.data<T>() + row * d_gate.stride(0);
      T* d_u = d_up.data<T>() + row * d_up.stride(0);
      T* out = y.defined() ? y.data<T>() + row * y.stride(0) : nullptr;
      for (int64_t j = 0; j < gate.extent(1); ++j) {
        const A value = to_accumulate(g[j]);
        const A factor = to_accumulate(u[j]);
        const A d = to_accumulate(d_out[j]);
        const A s = sigmoid(value);
        d_g[j] = round_to<T>(d * factor * s * (A{1} + value * (A{1} - s)));
        d_u[j] = round_to<T>(d * value * s);
        if (out != nullptr) out[j] = round_to<T>(value * s * factor);
      }
    }
  });
}

}  // namespace shiftron::specification
