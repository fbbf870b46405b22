// Copies and sums on the CPU.
#include <array>
#include <cstring>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

template <typename From, typename To>
SHIFTRON_INLINE void convert_row(const From* from, To* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = round_to<To>(to_accumulate(from[i]));
}
SHIFTRON_CLONES void convert(const float* from, float* to, int64_t count) {
  convert_row(from, to, count);
}
SHIFTRON_CLONES void convert(const float* from, bfloat16* to, int64_t count) {
  convert_row(from, to, count);
}
SHIFTRON_CLONES void convert(const bfloat16* from, float* to, int64_t count) {
  convert_row(from, to, count);
}
SHIFTRON_CLONES void convert(const bfloat16* from, bfloat16* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

template <typename T>
SHIFTRON_INLINE void add_row(const T* a, const T* b, T* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = round_to<T>(to_accumulate(a[i]) + to_accumulate(b[i]));
}
SHIFTRON_CLONES double sum_squares(const float* x, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

// Calls body(row, begin, end) for pieces of rows of the shape; all tensors are traversed in the same way.
constexpr int64_t kPiece = 1 << 14;  // elements
template <typename Body>
void for_pieces(int threads, const ConstTensor& like, bool contiguous, const Body& body) {
  if (like.count() == 0) return;
  const int64_t width = contiguous ? like.count() : like.extent(like.dims() - 1);
  const int64_t rows = like.count() / width;
  if (width >= kPiece) {
    const int64_t pieces = (width + kPiece - 1) / kPiece;
    parallel_for(threads, rows * pieces, [&](int64_t task) {
      const int64_t begin = task % pieces * kPiece;
      body(task / pieces, begin, std::min(width, begin + kPiece));
    });
    return;
  }
  parallel_blocks(threads, rows, kPiece / width, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) body(row, 0, width);
  });
}

// At most 256 partial sums, added in order; their boundaries depend only on the count.
double sum_of_squares(const CpuOptions& cpu, const ConstTensor& x) {
  constexpr int64_t kPartials = 256;
  const int64_t block = std::max<int64_t>(kPiece, (x.count() + kPartials - 1) / kPartials);
  std::array<double, kPartials> partial{};
  parallel_blocks(cpu.threads, x.count(), block, [&](int64_t begin, int64_t end) {
    partial[static_cast<size_t>(begin / block)] = sum_squares(x.data<float>() + begin, end - begin);
  });
  double total = 0;
  for (const double part : partial) total += part;
  return total;
}

}  // namespace

SHIFTRON_CLONES void add_elements(const float* a, const float* b, float* y, int64_t count) {
  add_row(a, b, y, count);
}
SHIFTRON_CLONES void add_elements(const bfloat16* a, const bfloat16* b, bfloat16* y, int64_t count) {
  add_row(a, b, y, count);
}

// One share for each thread, because processors write long stretches without reading them first.
void fill_zero(const CpuOptions& cpu, Tensor x) {
  constexpr int64_t kLeastShare = 1 << 14;
  const int64_t bytes = x.count() * size_of(x.dtype()), threads = std::max(1, cpu.threads);
  const int64_t share = std::max(kLeastShare, (bytes + threads - 1) / threads);
  parallel_blocks(cpu.threads, bytes, share, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(x.raw()) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void copy(const CpuOptions& cpu, ConstTensor x, Tensor y) {
  const bool contiguous = x.contiguous() && y.contiguous();
  for_pieces(cpu.threads, x, contiguous, [&](int64_t row, int64_t begin, int64_t end) {
    const int64_t from = (contiguous ? 0 : row_offset(x, row)) + begin,
                  to = (contiguous ? 0 : row_offset(y, row)) + begin;
    const bool wide = x.dtype() == DType::float32;
    if (y.dtype() == DType::float32) {
      if (wide)
        convert(x.data<float>() + from, y.data<float>() + to, end - begin);
      else
        convert(x.data<bfloat16>() + from, y.data<float>() + to, end - begin);
    } else {
      if (wide)
        convert(x.data<float>() + from, y.data<bfloat16>() + to, end - begin);
      else
        convert(x.data<bfloat16>() + from, y.data<bfloat16>() + to, end - begin);
    }
  });
}

void add(const CpuOptions& cpu, ConstTensor a, ConstTensor b, Tensor y) {
  const bool contiguous = a.contiguous() && b.contiguous() && y.contiguous();
  for_pieces(cpu.threads, a, contiguous, [&](int64_t row, int64_t begin, int64_t end) {
    const auto at = [&](const ConstTensor& tensor) { return (contiguous ? 0 : row_offset(tensor, row)) + begin; };
    if (a.dtype() == DType::float32) {
      add_elements(a.data<float>() + at(a), b.data<float>() + at(b), y.data<float>() + at(y), end - begin);
    } else {
      add_elements(a.data<bfloat16>() + at(a), b.data<bfloat16>() + at(b), y.data<bfloat16>() + at(y), end - begin);
    }
  });
}

void sum_of_squares(const CpuOptions& cpu, const std::vector<Squares>& squares, Tensor sums, Tensor) {
  for (const auto& [x, sum] : squares) sums.data<double>()[sum] += sum_of_squares(cpu, x);
}

}  // namespace shiftron::fast
