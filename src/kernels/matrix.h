// Matrix products in memory on the CPU; all calls of oneDNN go through here.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron::fast {

// A row-major matrix whose rows are `stride` elements apart; `transposed`: the product uses its transpose.
struct Matrix {
  const void* data;
  DType dtype;
  int64_t stride;
  bool transposed = false;

  // Element (row, column) of the operand as the product uses it.
  template <typename T>
  const T* element(int64_t row, int64_t column) const {
    return static_cast<const T*>(data) + (transposed ? column * stride + row : row * stride + column);
  }
};

// c [m, n] (+)= a [m, k] · b [k, n]: a and b both float32 or both bfloat16; c float32, or bfloat16 if a and b are.
struct MatrixProduct {
  int threads;
  int64_t m, n, k;
  Matrix a, b;
  bool keep;  // add to c, which must be float32
  void* c;
  DType c_dtype;
  int64_t c_stride;
};

// c [m, n] float32 = a [m, k] · b [k, n] + keep · c, all float32, with the thread count set by LibraryThreads; on one
// thread within a team. Returns false if the library refuses.
bool product_float32(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, bool a_transposed,
                     const float* b, int64_t b_stride, bool b_transposed, bool keep, float* c, int64_t c_stride);

// is_narrow: whether a weight [out, in] is narrow. packs_weight: whether its float32 products with `rows` activations
// are faster with the library's matmul, which repacks the weight in every call, than with its sgemm. So it is on AMD's
// Zen 4 and 5 and on Xeons with AMX. There matmul is slower than sgemm for wider weights, and on Zen 4 for narrower
// ones.
constexpr bool is_narrow(int64_t in, int64_t out) {
  const int64_t least = in < out ? in : out;
  return least >= 256 && least <= 512;
}
constexpr bool packs_weight(int64_t rows, int64_t in, int64_t out) {
  return rows >= 2048 && is_narrow(in, out);
}
// Whether matmul also computes d_w [out, in] += d_yᵀ [out, rows] · x in float32; d_y's rows are `stride` elements
// apart. On Xeons with AMX: if the weight is narrow. On AMD's Zen 4 and 5, whose sgemm is otherwise up to 16 % faster:
// if also the rows are a multiple of 4 KiB apart, because sgemm reads those slowly (by 18 to 39 % on Zen 5).
bool gradient_by_library(int64_t rows, int64_t in, int64_t out, int64_t stride);

// c (+)= a · b. by: how bfloat16 is multiplied; our own tiles need the scratch.
// scratch: elements of b's type for a copy of b in another layout, or undefined.
void multiply(ProductsBy by, const MatrixProduct& product, const Tensor& scratch = {});

// For at most few_rows(dtype) rows of a, and b stored transposed. Returns false and does nothing for any other product.
// The bits of a row depend neither on the thread count nor on other rows.
// few_rows: with more rows the library is as fast or faster; it multiplies bfloat16 faster than float32.
inline constexpr int64_t few_rows(DType dtype) {
  return dtype == DType::float32 ? 8 : 4;
}
bool multiply_few_rows(const MatrixProduct& product);

// to = from, rounded.
void narrow(const float* from, bfloat16* to, int64_t count);

// While an object exists, the library uses this many threads for the calling thread: those of its team (thread_team.h).
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
