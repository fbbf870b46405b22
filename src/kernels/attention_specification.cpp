// Reference implementation of causal attention: softmax with a running maximum (Milakov and Gimelshein 2018), one row
// at a time.
#include <cmath>
#include <limits>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
namespace {

// Row of one head of a [rows, heads, head_dim] tensor.
template <typename T>
const T* head_row(const ConstTensor& x, int64_t row, int64_t head) {
  return x.data<T>() + row * x.stride(0) + head * x.stride(1);
}
template <typename T>
T* head_row(const Tensor& x, int64_t row, int64_t head) {
  return x.data<T>() + row * x.stride(0) + head * x.stride(1);
}

template <typename T>
Accumulation<T> dot(const T* a, const T* b, int64_t count) {
  Accumulation<T> sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += to_accumulate(a[i]) * to_accumulate(b[i]);
  return sum;
}

template <typename A>
A score_scale(int64_t head_dim) {
  return static_cast<A>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

}  // namespace

void attention_forward(const CpuOptions&, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start, AttentionShape shape,
                       Tensor out, Tensor log_sum_exp, Tensor scratch) {
  for_type(q.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const int64_t head_dim = q.extent(2);
    const int64_t group = q.extent(1) / k.extent(1);
    const A scale = score_scale<A>(head_dim);
    for (int64_t head = 0; head < q.extent(1); ++head) {
      for (int64_t t = 0; t < q.extent(0); ++t) {
        A* sums = scratch.data<A>();  // Σ exp(score − maximum) v
        for (int64_t d = 0; d < head_dim; ++d) sums[d] = 0;
        A maximum = -std::numeric_limits<A>::infinity();
        A total = 0;
        for (int64_t s = start.data<int32_t>()[t]; s <= t + shape.key_offset; ++s) {
          const A score = scale * dot(head_row<T>(q, t, head), head_row<T>(k, s, head / group), head_dim);
          if (score > maximum) {
            const A shrink = std::exp(maximum - score);
            total *= shrink;
            for (int64_t d = 0; d < head_dim; ++d) sums[d] *= shrink;
            maximum = score;
          }
          const A weight = std::exp(score - maximum);
          const T* value = head_row<T>(v, s, head / group);
          total += weight;
          for (int64_t d = 0; d < head_dim; ++d) sums[d] += weight * to_accumulate(value[d]);
        }
        T* result = head_row<T>(out, t, head);
        for (int64_t d = 0; d < head_dim; ++d) result[d] = round_to<T>(sums[d] / total);
        log_sum_exp.data<A>()[head * log_sum_exp.stride(0) + t] = maximum + std::log(total);
      }
    }
  });
}

// With p_ts = exp(score_ts − log_sum_exp_t), D_t = d_out_t·out_t and e_ts = p_ts (d_out_t·v_s − D_t) / √head_dim:
// d_q_t = Σ_s e_ts k_s, d_k_s = Σ_t e_ts q_t, d_v_s = Σ_t p_ts d_out_t; t over all query heads of the KV head.
void attention_backward(const CpuOptions&, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,
                        ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q, Tensor d_k,
                        Tensor d_v, Tensor scratch) {
  for_type(q.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const int64_t rows = q.extent(0);
    const int64_t heads = q.extent(1);
    const int64_t head_dim = q.extent(2);
    const int64_t group = heads / k.extent(1);
    const A scale = score_scale<A>(head_dim);
    const int32_t* first = start.data<int32_t>();
    A* sums = scratch.data<A>();  // [2, head_dim]
    A* value_sums = sums + head_dim;

    struct Pair {
      A p, e;
    };
    const auto pair = [&](int64_t head, int64_t t, int64_t s) {
      const A score = scale * dot(head_row<T>(q, t, head), head_row<T>(k, s, head / group), head_dim);
      const A p = std::exp(score - log_sum_exp.data<A>()[head * log_sum_exp.stride(0) + t]);
      const A d_p = dot(head_row<T>(d_out, t, head), head_row<T>(v, s, head / group), head_dim);
      const A d_dot_out = dot(head_row<T>(d_out, t, head), head_row<T>(out, t, head), head_dim);
      return Pair{p, p * (d_p - d_dot_out) * scale};
    };

    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t d = 0; d < head_dim; ++d) sums[d] = 0;
        for (int64_t s = first[t]; s <= t; ++s) {
          const A e = pair(head, t, s).e;
          const T* key = head_row<T>(k, s, head / group);
          for (int64_t d = 0; d < head_dim; ++d) sums[d] += e * to_accumulate(key[d]);
        }
        T* result = head_row<T>(d_q, t, head);
        for (int64_t d = 0; d < head_dim; ++d) result[d] = round_to<T>(sums[d]);
      }
    }
    for (int64_t kv_head = 0; kv_head < k.extent(1); ++kv_head) {
      for (int64_t s = 0; s < rows; ++s) {
        for (int64_t d = 0; d < 2 * head_dim; ++d) sums[d] = 0;
        const int64_t sample_end = s - s % shape.sequence_length + shape.sequence_length;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          for (int64_t t = s; t < sample_end && first[t] <= s; ++t) {
            const Pair both = pair(head, t, s);
            const T* query = head_row<T>(q, t, head);
            const T* d_result = head_row<T>(d_out, t, head);
            for (int64_t d = 0; d < head_dim; ++d) sums[d] += both.e * to_accumulate(query[d]);
            for (int64_t d = 0; d < head_dim; ++d) value_sums[d] += both.p * to_accumulate(d_result[d]);
          }
        }
        for (int64_t d = 0; d < head_dim; ++d) head_row<T>(d_k, s, kv_head)[d] = round_to<T>(sums[d]);
        for (int64_t d = 0; d < head_dim; ++d) head_row<T>(d_v, s, kv_head)[d] = round_to<T>(value_sums[d]);
      }
    }
  });
}

}  // namespace shiftron::specification
