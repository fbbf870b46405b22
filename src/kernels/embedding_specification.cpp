// Reference implementation of the embedding lookup and its gradient.
#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {

void embedding_forward(const CpuOptions&, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y) {
  const int32_t* id = ids.data<int32_t>();
  for_type(table.dtype(), [&](auto element) {
    using T = decltype(element);
    for (int64_t t = 0; t < ids.extent(0); ++t) {
      const int64_t entry = id[t] - vocab_begin;
      const bool here = entry >= 0 && entry < table.extent(0);
      T* out = y.data<T>() + t * y.stride(0);
      for (int64_t j = 0; j < table.extent(1); ++j) {
        out[j] = here ? table.data<T>()[entry * table.stride(0) + j] : T{};
      }
    }
  });
}

void embedding_backward(const CpuOptions&, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, Tensor d_table) {
  const int32_t* id = ids.data<int32_t>();
  for_type(d_y.dtype(), [&](auto element) {
    using T = decltype(element);
    for (int64_t t = 0; t < ids.extent(0); ++t) {
      const int64_t entry = id[t] - vocab_begin;
      if (entry < 0 || entry >= d_table.extent(0)) continue;
      const T* in = d_y.data<T>() + t * d_y.stride(0);
      auto* sums = d_table.data<Accumulation<T>>() + entry * d_table.stride(0);
      for (int64_t j = 0; j < d_table.extent(1); ++j) sums[j] += to_accumulate(in[j]);
    }
  });
}

}  // namespace shiftron::specification
