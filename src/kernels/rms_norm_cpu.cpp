// RMS norm on the CPU: a row stays in the first-level cache for both of its passes; d_w in partial sums of kNormRows
// rows.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"
#include "kernels/row_blocks.h"

namespace shiftron::fast {
namespace {

template <typename T>
SHIFTRON_INLINE float normalise_row(const T* x, const float* w, int64_t hidden, float epsilon, T* y) {
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (int64_t j = 0; j < hidden; ++j) squares += to_accumulate(x[j]) * to_accumulate(x[j]);
  const float r = 1.0f / std::sqrt(squares / static_cast<float>(hidden) + epsilon);
#pragma omp simd
  for (int64_t j = 0; j < hidden; ++j) y[j] = round_to<T>(to_accumulate(x[j]) * r * w[j]);
  return r;
}
SHIFTRON_CLONES float normalise(const float* x, const float* w, int64_t hidden, float epsilon, float* y) {
  return normalise_row(x, w, hidden, epsilon, y);
}
SHIFTRON_CLONES float normalise(const bfloat16* x, const float* w, int64_t hidden, float epsilon, bfloat16* y) {
  return normalise_row(x, w, hidden, epsilon, y);
}

template <typename T>
SHIFTRON_INLINE void gradient_row(const T* d_y, const T* x, const float* w, int64_t hidden, float r, T* d_x,
                                  float* d_w) {
  float products = 0.0f;
#pragma omp simd reduction(+ : products)
  for (int64_t j = 0; j < hidden; ++j) products += w[j] * to_accumulate(d_y[j]) * to_accumulate(x[j]);
  const float along = r * r * products / static_cast<float>(hidden);
#pragma omp simd
  for (int64_t j = 0; j < hidden; ++j) {
    const float d = to_accumulate(d_y[j]);
    const float value = to_accumulate(x[j]);
    d_w[j] += d * value * r;
    d_x[j] = round_to<T>(to_accumulate(d_x[j]) + r * (w[j] * d - value * along));
  }
}
SHIFTRON_CLONES void gradient(const float* d_y, const float* x, const float* w, int64_t hidden, float r, float* d_x,
                              float* d_w) {
  gradient_row(d_y, x, w, hidden, r, d_x, d_w);
}
SHIFTRON_CLONES void gradient(const bfloat16* d_y, const bfloat16* x, const float* w, int64_t hidden, float r,
                              bfloat16* d_x, float* d_w) {
  gradient_row(d_y, x, w, hidden, r, d_x, d_w);
}

SHIFTRON_CLONES void add_to(const float* from, float* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// before_row(row) runs before the norm of each row.
template <typename T, typename BeforeRow>
void forward(const CpuOptions& cpu, const ConstTensor& x, const ConstTensor& w, double epsilon, const Tensor& y,
             const Tensor& inverse_rms, const BeforeRow& before_row) {
  parallel_blocks(cpu.threads, x.extent(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      before_row(row);
      inverse_rms.data<float>()[row] = normalise(x.data<T>() + row * x.stride(0), w.data<float>(), x.extent(1),
                                                 static_cast<float>(epsilon), y.data<T>() + row * y.stride(0));
    }
  });
}

template <typename T>
void add_forward(const CpuOptions& cpu, const ConstTensor& residual, const Tensor& x, const ConstTensor& w,
                 double epsilon, const Tensor& y, const Tensor& inverse_rms) {
  forward<T>(cpu, x, w, epsilon, y, inverse_rms, [&](int64_t row) {
    T* const sum = x.data<T>() + row * x.stride(0);
    add_elements(residual.data<T>() + row * residual.stride(0), sum, sum, x.extent(1));
  });
}

template <typename T>
void backward(const CpuOptions& cpu, const ConstTensor& d_y, const ConstTensor& x, const float* w, const float* inverse_rms,
              const Tensor& d_x, float* partial) {
  const int64_t hidden = x.extent(1);
  parallel_blocks(cpu.threads, x.extent(0), kNormRows, [&](int64_t begin, int64_t end) {
    float* sums = partial + begin / kNormRows * hidden;
    std::fill_n(sums, hidden, 0.0f);
    for (int64_t row = begin; row < end; ++row) {
      gradient(d_y.data<T>() + row * d_y.stride(0), x.data<T>() + row * x.stride(0), w, hidden, inverse_rms[row],
               d_x.data<T>() + row * d_x.stride(0), sums);
    }
  });
}

}  // namespace

void rms_norm_forward(const CpuOptions& cpu, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms) {
  const auto nothing = [](int64_t) {};
  if (x.dtype() == DType::float32)
    forward<float>(cpu, x, w, epsilon, y, inverse_rms, nothing);
  else
    forward<bfloat16>(cpu, x, w, epsilon, y, inverse_rms, nothing);
}

void add_rms_norm_forward(const CpuOptions& cpu, ConstTensor residual, Tensor x, ConstTensor w, double epsilon,
                          Tensor y, Tensor inverse_rms) {
  if (x.dtype() == DType::float32)
    add_forward<float>(cpu, residual, x, w, epsilon, y, inverse_rms);
  else
    add_forward<bfloat16>(cpu, residual, x, w, epsilon, y, inverse_rms);
}

void rms_norm_backward(const CpuOptions& cpu, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms,
                       Tensor d_x, Tensor d_w, Tensor scratch) {
  auto* partial = scratch.data<float>();
  const auto* scale = w.data<float>();
  if (x.dtype() == DType::float32)
    backward<float>(cpu, d_y, x, scale, inverse_rms.data<float>(), d_x, partial);
  else
    backward<bfloat16>(cpu, d_y, x, scale, inverse_rms.data<float>(), d_x, partial);
  const int64_t hidden = x.extent(1);
  parallel_blocks(cpu.threads, hidden, 64, [&](int64_t begin, int64_t end) {
    for (int64_t block = 0; block < row_blocks(x.extent(0), kNormRows); ++block) {
      add_to(partial + block * hidden + begin, d_w.data<float>() + begin, end - begin);
    }
  });
}

}  // namespace shiftron::fast
