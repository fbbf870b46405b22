// Taps from raw parameters, their gradient, and the RoPE table in CUDA.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/device_cuda.h"

namespace shiftron::cuda {
namespace {

__device__ float sigmoid_of(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// One thread per head.
__global__ void __launch_bounds__(kBlockThreads)
    taps_kernel(const float* raw, int64_t raw_stride, TapForm form, int64_t heads, int64_t count, float* taps,
                int64_t stride) {
  await_earlier_kernels();
  const int64_t head = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (head < heads) {
    const float* in = raw + head * raw_stride;
    float* out = taps + head * stride;
    if (form == TapForm::gate) {
      out[0] = sigmoid_of(-in[0]);  // 1 − s without cancellation
      out[1] = sigmoid_of(in[0]);
    } else {
      for (int64_t j = 0; j < count; ++j) {
        const bool clamps = form == TapForm::clamp;
        out[j] = clamps && in[j] < 0.0f ? 0.0f : clamps && in[j] > 1.0f ? 1.0f : in[j];
      }
    }
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    taps_backward_kernel(const float* raw, int64_t raw_stride, TapForm form, const float* d_taps, int64_t heads,
                         int64_t count, int64_t stride, float* sums, int64_t sums_stride) {
  await_earlier_kernels();
  const int64_t head = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (head < heads) {
    const float* in = raw + head * raw_stride;
    const float* d_out = d_taps + head * stride;
    float* d_in = sums + head * sums_stride;
    if (form == TapForm::gate) {  // taps (1 − s, s), ds = s (1 − s)
      d_in[0] += sigmoid_of(in[0]) * sigmoid_of(-in[0]) * (d_out[1] - d_out[0]);
    } else {
      for (int64_t j = 0; j < count; ++j) {
        const bool passes = form == TapForm::free || (in[j] >= 0.0f && in[j] <= 1.0f);
        if (passes) d_in[j] += d_out[j];
      }
    }
  }
}

// One thread per angle.
__global__ void __launch_bounds__(kBlockThreads)
    rope_kernel(double base, int64_t positions, int64_t half, float* cosine, float* sine, int64_t stride) {
  await_earlier_kernels();
  const int64_t index = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (index < positions * half) {
    const int64_t position = index / half;
    const int64_t i = index % half;
    const double frequency = pow(base, -static_cast<double>(i) / static_cast<double>(half));
    const double angle = static_cast<double>(position) * frequency;
    cosine[position * stride + i] = static_cast<float>(cos(angle));
    sine[position * stride + i] = static_cast<float>(sin(angle));
  }
}

}  // namespace

void shift_taps_forward(const CudaContext& context, ConstTensor raw, TapForm form, Tensor taps) {
  constexpr const char* kName = "shift_taps_forward";
  check_float32(kName, taps.dtype());
  const int64_t heads = taps.extent(0);
  launch_kernel(kName, taps_kernel, grid_for(heads), kBlockThreads, context.stream, raw.data<float>(), raw.stride(0),
                form, heads, taps.extent(1), taps.data<float>(), taps.stride(0));
}

void shift_taps_backward(const CudaContext& context, ConstTensor raw, TapForm form, ConstTensor d_taps, Tensor sums) {
  constexpr const char* kName = "shift_taps_backward";
  check_float32(kName, d_taps.dtype());
  const int64_t heads = d_taps.extent(0);
  launch_kernel(kName, taps_backward_kernel, grid_for(heads), kBlockThreads, context.stream, raw.data<float>(),
                raw.stride(0), form, d_taps.data<float>(), heads, d_taps.extent(1), d_taps.stride(0),
                sums.data<float>(), sums.stride(0));
}

void rope_table(const CudaContext& context, double base, Tensor table) {
  constexpr const char* kName = "rope_table";
  check_float32(kName, table.dtype());
  auto* cosine = table.data<float>();
  launch_kernel(kName, rope_kernel, grid_for(table.extent(1) * table.extent(2)), kBlockThreads, context.stream, base,
                table.extent(1), table.extent(2), cosine, cosine + table.stride(0), table.stride(1));
}

}  // namespace shiftron::cuda
