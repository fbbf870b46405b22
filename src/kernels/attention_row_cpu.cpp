// Attention of a single query row on the CPU: keys and values are read once, in place, in blocks with online softmax
// (Milakov and Gimelshein 2018). Blocks are the tasks of threads; their results are combined in order.
#include <cmath>
#include <type_traits>

#include "kernels/attention_row.h"
#include "kernels/attention_tiles.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kStep = 64;    // keys whose scores are computed at a time
constexpr int64_t kBlock = 256;  // keys of a task, at least
constexpr int64_t kMostBlocks = 8;

// Sums of one query head over some keys. Σ exp(score − maximum) v, [head_dim], is stored in front of these two.
struct Partial {
  float maximum, sum;
};

// What a task reads: rows of one KV head, and the query heads of its group.
template <typename T>
struct Keys {
  const T *k, *v;
  int64_t k_stride, v_stride, count;
};
struct Queries {
  const float* q;  // [group, head_dim], scaled
  int64_t group, head_dim;
};

// Takes four keys or values at a time, because separate short loops have more overhead than work.
template <typename T>
SHIFTRON_INLINE void score(const float* q, const T* k, int64_t stride, int64_t count, int64_t head_dim, float* scores) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, k += 4 * stride) {
    const T *k1 = k + stride, *k2 = k1 + stride, *k3 = k2 + stride;
    float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
    for (int64_t d = 0; d < head_dim; ++d) {
      sum0 += q[d] * to_accumulate(k[d]);
      sum1 += q[d] * to_accumulate(k1[d]);
      sum2 += q[d] * to_accumulate(k2[d]);
      sum3 += q[d] * to_accumulate(k3[d]);
    }
    scores[i] = sum0;
    scores[i + 1] = sum1;
    scores[i + 2] = sum2;
    scores[i + 3] = sum3;
  }
  for (; i < count; ++i, k += stride) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < head_dim; ++d) sum += q[d] * to_accumulate(k[d]);
    scores[i] = sum;
  }
  for (; i < kStep; ++i) scores[i] = -INFINITY;
}

// scores ← exp(score − maximum). The maximum includes earlier keys, whose sums are rescaled to it.
SHIFTRON_INLINE void soften(float* scores, int64_t head_dim, Partial& partial, float* result) {
  int32_t order = order_of(partial.maximum);
#pragma omp simd reduction(max : order)
  for (int64_t i = 0; i < kStep; ++i) order = std::max(order, order_of(scores[i]));
  const float maximum = value_of(order);
  const float reference = maximum == -INFINITY ? 0.0f : maximum;
  const float shrink = exponential(partial.maximum - reference);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < kStep; ++i) {
    scores[i] = exponential(scores[i] - reference);
    sum += scores[i];
  }
#pragma omp simd
  for (int64_t d = 0; d < head_dim; ++d) result[d] *= shrink;
  partial = {maximum, partial.sum * shrink + sum};
}

template <typename T>
SHIFTRON_INLINE void add_values(const float* p, const T* v, int64_t stride, int64_t count, int64_t head_dim,
                                float* result) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, v += 4 * stride) {
    const T *v1 = v + stride, *v2 = v1 + stride, *v3 = v2 + stride;
    const float p0 = p[i], p1 = p[i + 1], p2 = p[i + 2], p3 = p[i + 3];
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) {
      result[d] += (p0 * to_accumulate(v[d]) + p1 * to_accumulate(v1[d])) +
                   (p2 * to_accumulate(v2[d]) + p3 * to_accumulate(v3[d]));
    }
  }
  for (; i < count; ++i, v += stride) {
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) result[d] += p[i] * to_accumulate(v[d]);
  }
}

template <typename T>
SHIFTRON_INLINE void attend_block(const Queries& queries, const Keys<T>& keys, float* partials) {
  const int64_t width = queries.head_dim;
  float* results = partials;
  auto* ends = reinterpret_cast<Partial*>(partials + queries.group * width);
  std::fill_n(results, queries.group * width, 0.0f);
  std::fill_n(ends, queries.group, Partial{-INFINITY, 0.0f});
  alignas(64) float scores[kStep];
  for (int64_t begin = 0; begin < keys.count; begin += kStep) {
    const int64_t count = std::min(kStep, keys.count - begin);
    for (int64_t head = 0; head < queries.group; ++head) {
      float* result = results + head * width;
      score(queries.q + head * width, keys.k + begin * keys.k_stride, keys.k_stride, count, width, scores);
      soften(scores, width, ends[head], result);
      add_values(scores, keys.v + begin * keys.v_stride, keys.v_stride, count, width, result);
    }
  }
}
// Loops of a known length are faster.
template <typename T>
SHIFTRON_INLINE void attend_width(const Queries& queries, const Keys<T>& keys, float* partials) {
  if (queries.head_dim == 64)
    attend_block({queries.q, queries.group, 64}, keys, partials);
  else if (queries.head_dim == 128)
    attend_block({queries.q, queries.group, 128}, keys, partials);
  else
    attend_block(queries, keys, partials);
}
SHIFTRON_CLONES void attend(const Queries& queries, const Keys<float>& keys, float* partials) {
  attend_width(queries, keys, partials);
}
SHIFTRON_CLONES void attend(const Queries& queries, const Keys<bfloat16>& keys, float* partials) {
  attend_width(queries, keys, partials);
}

// Combines the blocks of one query head into the first; returns log Σ exp.
SHIFTRON_CLONES float join(int64_t blocks, int64_t stride, int64_t head_dim, float* result, Partial* end) {
  for (int64_t block = 1; block < blocks; ++block) {
    const float* other = result + block * stride;
    const Partial from = *reinterpret_cast<const Partial*>(reinterpret_cast<float*>(end) + block * stride);
    const float maximum = value_of(std::max(order_of(end->maximum), order_of(from.maximum)));
    const float reference = maximum == -INFINITY ? 0.0f : maximum;
    const float mine = exponential(end->maximum - reference), theirs = exponential(from.maximum - reference);
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) result[d] = result[d] * mine + other[d] * theirs;
    *end = {maximum, end->sum * mine + from.sum * theirs};
  }
  const float factor = 1.0f / end->sum;
#pragma omp simd
  for (int64_t d = 0; d < head_dim; ++d) result[d] *= factor;
  return end->maximum + std::log(end->sum);
}

template <typename T>
bool attend_all(const CpuOptions& cpu, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v, int64_t first,
                int64_t key_end, const Tensor& out, const Tensor& log_sum_exp, const Tensor& scratch) {
  const int64_t heads = q.extent(1), width = q.extent(2), kv_heads = k.extent(1), group = heads / kv_heads;
  const int64_t partial = group * (width + 2);  // floats
  // Limited to the scratch of one thread of the tiled version, so that the result does not depend on the thread count.
  const int64_t room = AttentionTiles(1, group, width, AttentionTiles::kRows).thread_floats() - heads * width;
  const int64_t most = std::min(kMostBlocks, room / (kv_heads * partial));
  if (most < 1) return false;
  const int64_t blocks = std::clamp<int64_t>((key_end - first) / kBlock, 1, most);
  const int64_t size = (key_end - first + blocks - 1) / blocks;
  auto* scaled = scratch.data<float>();
  float* partials = scaled + heads * width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  for (int64_t head = 0; head < heads; ++head) {
    const T* row = q.data<T>() + head * q.stride(1);
    for (int64_t d = 0; d < width; ++d) scaled[head * width + d] = to_accumulate(row[d]) * scale;
  }
  parallel_for(cpu.threads, kv_heads * blocks, [&](int64_t task) {
    const int64_t head = task / blocks, begin = first + task % blocks * size;
    const Keys<T> keys{k.data<T>() + begin * k.stride(0) + head * k.stride(1),
                       v.data<T>() + begin * v.stride(0) + head * v.stride(1), k.stride(0), v.stride(0),
                       std::min(size, key_end - begin)};
    attend({scaled + head * group * width, group, width}, keys, partials + task * partial);
  });
  for (int64_t head = 0; head < heads; ++head) {
    float* results = partials + head / group * blocks * partial;
    float* result = results + head % group * width;
    auto* end = reinterpret_cast<Partial*>(results + group * width) + head % group;
    log_sum_exp.data<float>()[head * log_sum_exp.stride(0)] = join(blocks, partial, width, result, end);
    T* to = out.data<T>() + head * out.stride(1);
    for (int64_t d = 0; d < width; ++d) to[d] = round_to<T>(result[d]);
  }
  return true;
}

}  // namespace

bool attention_of_one_row(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                          AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch) {
  if (q.extent(0) != 1) return false;
  const int64_t first = start.data<int32_t>()[0], key_end = shape.key_offset + 1;
  return q.dtype() == DType::float32 ? attend_all<float>(cpu, q, k, v, first, key_end, out, log_sum_exp, scratch)
                                     : attend_all<bfloat16>(cpu, q, k, v, first, key_end, out, log_sum_exp, scratch);
}

}  // namespace shiftron::fast
