// SwiGLU on the CPU: y = gate · s · up, s = sigmoid(gate); d_up = d_y · gate · s, d_gate = d_y · up · s (1 + gate (1 −
// s)).
#include <initializer_list>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

template <typename T>
SHIFTRON_INLINE void forward_row(const T* gate, const T* up, T* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = to_accumulate(gate[i]);
    y[i] = round_to<T>(g * sigmoid(g) * to_accumulate(up[i]));
  }
}
SHIFTRON_CLONES void forward(const float* gate, const float* up, float* y, int64_t count) {
  forward_row(gate, up, y, count);
}
SHIFTRON_CLONES void forward(const bfloat16* gate, const bfloat16* up, bfloat16* y, int64_t count) {
  forward_row(gate, up, y, count);
}

// y: null if it is not wanted.
template <bool with_y, typename T>
SHIFTRON_INLINE void backward_elements(const T* d_y, const T* gate, const T* up, T* d_gate, T* d_up, T* y,
                                       int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float d = to_accumulate(d_y[i]);
    const float g = to_accumulate(gate[i]);
    const float u = to_accumulate(up[i]);
    const float s = sigmoid(g);
    d_up[i] = round_to<T>(d * g * s);
    d_gate[i] = round_to<T>(d * u * s * (1.0f + g * (1.0f - s)));
    if constexpr (with_y) y[i] = round_to<T>(g * s * u);
  }
}
template <typename T>
SHIFTRON_INLINE void backward_row(const T* d_y, const T* gate, const T* up, T* d_gate, T* d_up, T* y, int64_t count) {
  if (y != nullptr)
    backward_elements<true>(d_y, gate, up, d_gate, d_up, y, count);
  else
    backward_elements<false>(d_y, gate, up, d_gate, d_up, y, count);
}
SHIFTRON_CLONES void backward(const float* d_y, const float* gate, const float* up, float* d_gate, float* d_up,
                              float* y, int64_t count) {
  backward_row(d_y, gate, up, d_gate, d_up, y, count);
}
SHIFTRON_CLONES void backward(const bfloat16* d_y, const bfloat16* gate, const bfloat16* up, bfloat16* d_gate,
                              bfloat16* d_up, bfloat16* y, int64_t count) {
  backward_row(d_y, gate, up, d_gate, d_up, y, count);
}

template <typename T>
T* row_of(const Tensor& tensor, int64_t row) {
  return tensor.data<T>() + row * tensor.stride(0);
}
template <typename T>
const T* row_of(const ConstTensor& tensor, int64_t row) {
  return tensor.data<T>() + row * tensor.stride(0);
}

template <typename T>
void fetch(const T* from, int64_t count) {
  constexpr int64_t kLine = kCacheLine / sizeof(T);
  for (int64_t at = 0; at < count; at += kLine) __builtin_prefetch(from + at, 0, 2);
}

// Calls body(row, begin, end) for pieces of a row. Prefetches the same piece of the next row, because a processor's own
// prefetching starts over in each row. Rows of float32 are read at the memory's speed without that.
template <typename T, typename Body>
void for_pieces(int threads, std::initializer_list<ConstTensor> read, const Body& body) {
  constexpr int64_t kRows = 16, kPiece = 512;
  const int64_t rows = read.begin()->extent(0), columns = read.begin()->extent(1);
  parallel_blocks(threads, rows, kRows, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      for (int64_t begin = 0; begin < columns; begin += kPiece) {
        const int64_t end = std::min(columns, begin + kPiece);
        if (std::is_same_v<T, bfloat16> && row + 1 < last) {
          for (const ConstTensor& tensor : read) fetch(row_of<T>(tensor, row + 1) + begin, end - begin);
        }
        body(row, begin, end);
      }
    }
  });
}

template <typename T>
void forward_all(int threads, const ConstTensor& gate, const ConstTensor& up, const Tensor& y) {
  for_pieces<T>(threads, {gate, up}, [&](int64_t i, int64_t begin, int64_t end) {
    forward(row_of<T>(gate, i) + begin, row_of<T>(up, i) + begin, row_of<T>(y, i) + begin, end - begin);
  });
}

template <typename T>
void backward_all(int threads, const ConstTensor& d_y, const ConstTensor& gate, const ConstTensor& up,
                  const Tensor& d_gate, const Tensor& d_up, const Tensor& y) {
  for_pieces<T>(threads, {d_y, gate, up}, [&](int64_t i, int64_t begin, int64_t end) {
    backward(row_of<T>(d_y, i) + begin, row_of<T>(gate, i) + begin, row_of<T>(up, i) + begin,
             row_of<T>(d_gate, i) + begin, row_of<T>(d_up, i) + begin, y.defined() ? row_of<T>(y, i) + begin : nullptr,
             end - begin);
  });
}

}  // namespace

void swiglu_forward(const CpuOptions& cpu, ConstTensor gate, ConstTensor up, Tensor y) {
  if (gate.dtype() == DType::float32)
    forward_all<float>(cpu.threads, gate, up, y);
  else
    forward_all<bfloat16>(cpu.threads, gate, up, y);
}

void swiglu_backward(const CpuOptions& cpu, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate,
                     Tensor d_up, Tensor y) {
  if (gate.dtype() == DType::float32)
    backward_all<float>(cpu.threads, d_y, gate, up, d_gate, d_up, y);
  else
    backward_all<bfloat16>(cpu.threads, d_y, gate, up, d_gate, d_up, y);
}

}  // namespace shiftron::fast
