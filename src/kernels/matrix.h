// Products of matrices in memory on the CPU: the one door to oneDNN.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron::fast {

// A row-major matrix whose rows are `stride` elements apart; `transposed`: its transpose enters the product.
struct Matrix {
  const void* data;
  DType dtype;
  int64_t stride;
  bool transposed = false;

  // Element (row, column) of what enters the product.
  template <typename T>
  const T* element(int64_t row, int64_t column) const {
    return static_cast<const T*>(data) + (transposed ? column * stride + row : row * stride + column);
  }
};

// c [m, n] (+)= a [m, k] · b [k, n]: a and b both float32 or both bfloat16, c float32, or bfloat16 of bfloat16.
struct MatrixProduct {
  int threads;
  int64_t m, n, k;
  Matrix a, b;
  bool keep;  // what stands in c, which is float32
  void* c;
  DType c_dtype;
  int64_t c_stride;
};

// c [m, n] float32 = a [m, k] · b [k, n] + keep · c, all float32, by as many threads as LibraryThreads says; by one
// within a team. False when the library refuses.
bool product_float32(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, bool a_transposed,
                     const float* b, int64_t b_stride, bool b_transposed, bool keep, float* c, int64_t c_stride);

// Whether a weight [out, in] is narrow, and whether in float32 its products with `rows` activations are made by the
// library's matmul, which lays the weight out anew in every call, faster than by its sgemm: on AMD's Zen 4 and 5 and on
// Xeons with AMX. Wider ones it makes more slowly there, narrower ones on Zen 4.
constexpr bool is_narrow(int64_t in, int64_t out) {
  const int64_t least = in < out ? in : out;
  return least >= 256 && least <= 512;
}
constexpr bool packs_weight(int64_t rows, int64_t in, int64_t out) {
  return rows >= 2048 && is_narrow(in, out);
}
// Whether it makes d_w [out, in] += d_yᵀ [out, rows] · x in float32 too, d_y's rows being `stride` elements apart: on
// Xeons with AMX where the weight is narrow, on AMD's Zen 4 and 5, whose sgemm is else up to 16 % faster, where they
// lie a multiple of 4 KiB apart besides: those sgemm reads slowly, by 18 to 39 % on Zen 5.
bool gradient_by_library(int64_t rows, int64_t in, int64_t out, int64_t stride);

// c (+)= a · b. by: what multiplies bfloat16; own tiles need the scratch.
// scratch: elements of b's type into which b may be copied in another layout, or undefined.
void multiply(ProductsBy by, const MatrixProduct& product, const Tensor& scratch = {});

// For at most few_rows(dtype) rows of a and a b that is stored transposed. False, and nothing done, for any other
// product. A row's bits depend on neither the threads nor the other rows.
// few_rows: with more the library, which multiplies bfloat16 faster than float32, is as fast or faster.
inline constexpr int64_t few_rows(DType dtype) {
  return dtype == DType::float32 ? 8 : 4;
}
bool multiply_few_rows(const MatrixProduct& product);

// to = from, rounded.
void narrow(const float* from, bfloat16* to, int64_t count);

// While one lives, the library computes on so many threads for this thread: those of its team (thread_team.h).
class LibraryThreads {
 public:
  explicit LibraryThreads(int threads);
  ~LibraryThreads();
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int before_;
};

}  // namespace shiftron::fast
