// RMS norm in CUDA: a block goes along a row at a time. Of the gradient, as many blocks as scratch has rows go through
// all rows, each with its own partial sums of d_w; a second kernel adds those in their order.
#include "kernels/bodies.h"
#include "kernels/device_cuda.h"
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

constexpr int kNormBlocks = 2;  // of the gradient's that a multiprocessor has at a time

// y = x r w of the row of a block, whose threads have its squares in parts.
template <int kWidth, typename T>
__device__ void scale_row(const T* in, const float* w, int64_t hidden, float epsilon, float squares, T* out,
                          float* inverse_rms) {
  constexpr int64_t kStep = int64_t{kBlockThreads} * kWidth;
  const int64_t begin = int64_t{threadIdx.x} * kWidth;
  const float r = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(hidden) + epsilon);
  if (threadIdx.x == 0) *inverse_rms = r;
  for (int64_t j = begin; j < hidden; j += kStep) {
    const auto values = load_elements<kWidth>(in + j);
    const auto scales = load_elements<kWidth>(w + j);
    Elements<T, kWidth> normal;
    for (int i = 0; i < kWidth; ++i) normal[i] = from_float<T>(to_float(values[i]) * r * scales[i]);
    store_elements(out + j, normal);
  }
}

// x, y [rows, hidden], w [hidden], inverse_rms [rows]
template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads) normalise(const T* x, int64_t x_stride, const float* w, int64_t hidden,
                                                           float epsilon, T* y, int64_t y_stride, float* inverse_rms) {
  constexpr int64_t kStep = int64_t{kBlockThreads} * kWidth;
  const int64_t row = blockIdx.x;
  const T* const in = x + row * x_stride;
  float squares = 0.0f;
  for (int64_t j = int64_t{threadIdx.x} * kWidth; j < hidden; j += kStep) {
    const auto values = load_elements<kWidth>(in + j);
    for (int i = 0; i < kWidth; ++i) squares += to_float(values[i]) * to_float(values[i]);
  }
  scale_row<kWidth>(in, w, hidden, epsilon, squares, y + row * y_stride, inverse_rms + row);
}

// residual too; x becomes the sum. A thread reads again what it wrote itself.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    add_normalise(const T* residual, int64_t residual_stride, T* x, int64_t x_stride, const float* w, int64_t hidden,
                  float epsilon, T* y, int64_t y_stride, float* inverse_rms) {
  constexpr int64_t kStep = int64_t{kBlockThreads} * kWidth;
  const int64_t row = blockIdx.x;
  const T* const before = residual + row * residual_stride;
  T* const in = x + row * x_stride;
  float squares = 0.0f;
  for (int64_t j = int64_t{threadIdx.x} * kWidth; j < hidden; j += kStep) {
    const auto left = load_elements<kWidth>(before + j);
    auto values = load_elements<kWidth>(in + j);
    for (int i = 0; i < kWidth; ++i) {
      values[i] = from_float<T>(to_float(left[i]) + to_float(values[i]));
      squares += to_float(values[i]) * to_float(values[i]);
    }
    store_elements(in + j, values);
  }
  scale_row<kWidth>(in, w, hidden, epsilon, squares, y + row * y_stride, inverse_rms + row);
}

template <typename T>
struct GradientRows {
  const T* d_y;
  int64_t d_y_stride;
  const T* x;
  int64_t x_stride;
  T* d_x;
  int64_t d_x_stride;
};

// d_y, x, d_x [rows, hidden], w [hidden], inverse_rms [rows], partial [blocks, hidden]; blocks ≤ rows.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads, kNormBlocks)
    gradients(GradientRows<T> at, const float* w, const float* inverse_rms, int64_t rows, int64_t hidden,
              float* partial) {
  constexpr int64_t kStep = int64_t{kBlockThreads} * kWidth;
  const int64_t begin = int64_t{threadIdx.x} * kWidth;
  float* const sums = partial + blockIdx.x * hidden;  // a thread adds up its own columns
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const d_out = at.d_y + row * at.d_y_stride;
    const T* const in = at.x + row * at.x_stride;
    T* const d_in = at.d_x + row * at.d_x_stride;
    float products = 0.0f;
    for (int64_t j = begin; j < hidden; j += kStep) {
      const auto d = load_elements<kWidth>(d_out + j);
      const auto values = load_elements<kWidth>(in + j);
      const auto scales = load_elements<kWidth>(w + j);
      for (int i = 0; i < kWidth; ++i) products += scales[i] * to_float(d[i]) * to_float(values[i]);
    }
    const float r = inverse_rms[row];
    const float along = r * r * (block_sum(products) / static_cast<float>(hidden));
    for (int64_t j = begin; j < hidden; j += kStep) {
      const auto d = load_elements<kWidth>(d_out + j);
      const auto values = load_elements<kWidth>(in + j);
      const auto scales = load_elements<kWidth>(w + j);
      auto sum = row == blockIdx.x ? Elements<float, kWidth>{} : load_elements<kWidth>(sums + j);
      auto d_values = load_elements<kWidth>(d_in + j);
      for (int i = 0; i < kWidth; ++i) {
        const float d_one = to_float(d[i]), value = to_float(values[i]);
        sum[i] += d_one * value * r;
        d_values[i] = from_float<T>(to_float(d_values[i]) + r * (scales[i] * d_one - value * along));
      }
      store_elements(sums + j, sum);
      store_elements(d_in + j, d_values);
    }
  }
}

// partial [count, hidden], d_w [hidden]
__global__ void __launch_bounds__(kBlockThreads)
    add_partial_sums(const float* partial, int64_t count, int64_t hidden, float* d_w) {
  const int64_t column = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (column >= hidden) return;
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += partial[i * hidden + column];
  d_w[column] += sum;
}

}  // namespace

void rms_norm_forward(const CudaContext& context, ConstTensor x, ConstTensor w, double epsilon, Tensor y,
                      Tensor inverse_rms) {
  constexpr const char* kName = "rms_norm_forward";
  for_device_type(kName, x.dtype(), in_packs({x, w, y}), [&](auto element, auto width) {
    using T = decltype(element);
    launch_kernel(kName, normalise<T, width.value>, {.x = x.extent(0)}, kBlockThreads, context.stream,
                  device_data<T>(x), x.stride(0), device_data<float>(w), x.extent(1), static_cast<float>(epsilon),
                  device_data<T>(y), y.stride(0), device_data<float>(inverse_rms));
  });
}

void add_rms_norm_forward(const CudaContext& context, ConstTensor residual, Tensor x, ConstTensor w, double epsilon,
                          Tensor y, Tensor inverse_rms) {
  constexpr const char* kName = "add_rms_norm_forward";
  for_device_type(kName, x.dtype(), in_packs({residual, x, w, y}), [&](auto element, auto width) {
    using T = decltype(element);
    launch_kernel(kName, add_normalise<T, width.value>, {.x = x.extent(0)}, kBlockThreads, context.stream,
                  device_data<T>(residual), residual.stride(0), device_data<T>(x), x.stride(0), device_data<float>(w),
                  x.extent(1), static_cast<float>(epsilon), device_data<T>(y), y.stride(0),
                  device_data<float>(inverse_rms));
  });
}

void rms_norm_backward(const CudaContext& context, ConstTensor d_y, ConstTensor x, ConstTensor w,
                       ConstTensor inverse_rms, Tensor d_x, Tensor d_w, Tensor scratch) {
  constexpr const char* kName = "rms_norm_backward";
  const int64_t rows = x.extent(0), hidden = x.extent(1);
  if (rows == 0) return;
  const int64_t blocks = rms_norm_scratch(rows, hidden)[0];
  for_device_type(kName, x.dtype(), in_packs({d_y, x, w, d_x, scratch}), [&](auto element, auto width) {
    using T = decltype(element);
    const GradientRows<T> at = {device_data<T>(d_y), d_y.stride(0),       device_data<T>(x),
                                x.stride(0),         device_data<T>(d_x), d_x.stride(0)};
    launch_kernel(kName, gradients<T, width.value>, {.x = blocks}, kBlockThreads, context.stream, at,
                  device_data<float>(w), device_data<float>(inverse_rms), rows, hidden, device_data<float>(scratch));
  });
  launch_kernel(kName, add_partial_sums, grid_for(hidden), kBlockThreads, context.stream, device_data<float>(scratch),
                blocks, hidden, device_data<float>(d_w));
}

}  // namespace shiftron::cuda
