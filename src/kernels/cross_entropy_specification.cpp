// Specification of one shard's part of the cross-entropy and of its gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {

void cross_entropy_statistics(Stream&, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor statistics) {
  for_type(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const int64_t vocab = logits.extent(1);
    for (int64_t row = 0; row < logits.extent(0); ++row) {
      const T* in = logits.data<T>() + row * logits.stride(0);
      A* out = statistics.data<A>() + row * statistics.stride(0);
      A maximum = -std::numeric_limits<A>::infinity();
      for (int64_t j = 0; j < vocab; ++j) maximum = std::max(maximum, to_accumulate(in[j]));
      A sum = 0;
      for (int64_t j = 0; j < vocab; ++j) sum += std::exp(to_accumulate(in[j]) - maximum);
      const int64_t target = targets.data<int32_t>()[row] - vocab_begin;
      const bool here = targets.data<int32_t>()[row] >= 0 && target >= 0 && target < vocab;
      out[0] = maximum;
      out[1] = sum;
      out[2] = here ? to_accumulate(in[target]) : A{0};
    }
  });
}

void cross_entropy_backward(Stream&, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets, int64_t vocab_begin,
                            double scale) {
  for_type(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    for (int64_t row = 0; row < logits.extent(0); ++row) {
      T* values = logits.data<T>() + row * logits.stride(0);
      const int64_t target = targets.data<int32_t>()[row];
      const A log_sum = log_sum_exp.data<A>()[row];
      for (int64_t j = 0; j < logits.extent(1); ++j) {
        const A probability = std::exp(to_accumulate(values[j]) - log_sum);
        const A one = target - vocab_begin == j ? A{1} : A{0};
        values[j] = target < 0 ? T{} : round_to<T>((probability - one) * static_cast<A>(scale));
      }
    }
  });
}

}  // namespace shiftron::specification
