// Embedding on the CPU: forward split over rows, backward over columns, so that rows are added in order.
#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

template <typename T>
SHIFTRON_INLINE void accumulate_row(const T* from, float* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += to_accumulate(from[i]);
}
SHIFTRON_CLONES void accumulate(const float* from, float* to, int64_t count) {
  accumulate_row(from, to, count);
}
SHIFTRON_CLONES void accumulate(const bfloat16* from, float* to, int64_t count) {
  accumulate_row(from, to, count);
}

template <typename T>
void forward(const CpuOptions& cpu, const ConstTensor& ids, const ConstTensor& table, int64_t vocab_begin, const Tensor& y) {
  const int32_t* id = ids.data<int32_t>();
  const int64_t hidden = table.extent(1);
  parallel_blocks(cpu.threads, ids.extent(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t entry = id[t] - vocab_begin;
      T* out = y.data<T>() + t * y.stride(0);
      if (entry >= 0 && entry < table.extent(0))
        std::copy_n(table.data<T>() + entry * table.stride(0), hidden, out);
      else
        std::fill_n(out, hidden, T{});
    }
  });
}

template <typename T>
void backward(const CpuOptions& cpu, const ConstTensor& ids, const ConstTensor& d_y, int64_t vocab_begin,
              const Tensor& d_table) {
  const int32_t* id = ids.data<int32_t>();
  constexpr int64_t kColumns = 64;
  parallel_blocks(cpu.threads, d_table.extent(1), kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < ids.extent(0); ++t) {
      const int64_t entry = id[t] - vocab_begin;
      if (entry < 0 || entry >= d_table.extent(0)) continue;
      accumulate(d_y.data<T>() + t * d_y.stride(0) + begin, d_table.data<float>() + entry * d_table.stride(0) + begin,
                 end - begin);
    }
  });
}

}  // namespace

void embedding_forward(const CpuOptions& cpu, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y) {
  if (table.dtype() == DType::float32)
    forward<float>(cpu, ids, table, vocab_begin, y);
  else
    forward<bfloat16>(cpu, ids, table, vocab_begin, y);
}

void embedding_backward(const CpuOptions& cpu, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, Tensor d_table) {
  if (d_y.dtype() == DType::float32)
    backward<float>(cpu, ids, d_y, vocab_begin, d_table);
  else
    backward<bfloat16>(cpu, ids, d_y, vocab_begin, d_table);
}

}  // namespace shiftron::fast
