// SwiGLU in CUDA, with the formulas of its reference implementation.
#include "kernels/bodies.h"
#include "kernels/pieces_cuda.h"

namespace shiftron::cuda {
namespace {

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

template <typename T>
struct SwigluForward {
  static constexpr int kPack = kPackOf<T>;
  const T *gate, *up;
  T* y;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[3]) const {
    const auto gates = load_elements<kCount>(gate + at[0]);
    const auto factors = load_elements<kCount>(up + at[1]);
    Elements<T, kCount> out;
    for (int i = 0; i < kCount; ++i) {
      const float g = to_float(gates[i]);
      out[i] = from_float<T>(g * sigmoid(g) * to_float(factors[i]));
    }
    store_elements(y + at[2], out);
  }
};

// Results may share the memory of the arguments, element by element: a thread reads its elements before it writes any.
template <typename T>
struct SwigluBackward {
  static constexpr int kPack = kPackOf<T>;
  const T *d_y, *gate, *up;
  T *d_gate, *d_up;
  T* y;  // null if it is not wanted
  template <int kCount>
  __device__ void piece(const int64_t (&at)[6]) const {
    const auto d_outs = load_elements<kCount>(d_y + at[0]);
    const auto gates = load_elements<kCount>(gate + at[1]);
    const auto factors = load_elements<kCount>(up + at[2]);
    Elements<T, kCount> d_gates, d_factors, out;
    for (int i = 0; i < kCount; ++i) {
      const float d = to_float(d_outs[i]), g = to_float(gates[i]), u = to_float(factors[i]), s = sigmoid(g);
      d_gates[i] = from_float<T>(d * u * s * (1.0f + g * (1.0f - s)));
      d_factors[i] = from_float<T>(d * g * s);
      out[i] = from_float<T>(g * s * u);
    }
    store_elements(d_gate + at[3], d_gates);
    store_elements(d_up + at[4], d_factors);
    if (y != nullptr) store_elements(y + at[5], out);
  }
};

}  // namespace

void swiglu_forward(const CudaContext& context, ConstTensor gate, ConstTensor up, Tensor y) {
  constexpr const char* kName = "swiglu_forward";
  for_device_type(kName, gate.dtype(), [&](auto element) {
    using T = decltype(element);
    const SwigluForward<T> forward{device_data<T>(gate), device_data<T>(up), device_data<T>(y)};
    for_each_piece(kName, context.stream, forward, gate, up, y);
  });
}

void swiglu_backward(const CudaContext& context, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate,
                     Tensor d_up, Tensor y) {
  constexpr const char* kName = "swiglu_backward";
  for_device_type(kName, gate.dtype(), [&](auto element) {
    using T = decltype(element);
    const SwigluBackward<T> backward{device_data<T>(d_y),    device_data<T>(gate), device_data<T>(up),
                                     device_data<T>(d_gate), device_data<T>(d_up), device_data<T>(y)};
    for_each_piece(kName, context.stream, backward, d_y, gate, up, d_gate, d_up, y);
  });
}

}  // namespace shiftron::cuda
