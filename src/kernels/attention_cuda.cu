// Bodies of attention. In bfloat16 cuDNN's plans handle the shapes of training. What they do not support (float32,
// decoding, unaligned rows) runs in our own kernels, with a warp for each row and head, in the order of the reference
// implementation.
#include <cmath>

#include "kernels/attention_head_dim.h"
#include "kernels/attention_plans_cuda.h"
#include "kernels/bodies.h"
#include "kernels/device_cuda.h"

namespace shiftron::cuda {
namespace {

constexpr int kBlock = 128;
constexpr int kBlockRows = kBlock / kWarp;

// ---- own kernels ----------------------------------------------------------------------------------------------------

// A [rows, heads, head_dim] tensor.
template <typename T>
struct HeadRows {
  T* data;
  int64_t row, head;  // strides

  __device__ T* at(int64_t of_row, int64_t of_head) const { return data + of_row * row + of_head * head; }
};

template <typename T>
HeadRows<const T> head_rows(const ConstTensor& x) {
  return {device_data<T>(x), x.stride(0), x.stride(1)};
}
template <typename T>
HeadRows<T> head_rows(const Tensor& x) {
  return {device_data<T>(x), x.stride(0), x.stride(1)};
}

struct RowShape {
  int64_t rows, head_dim, group, key_offset;
  float scale;
};

// A lane's part of a row: elements lane, lane + 32, …
template <int kCount>
struct LaneRow {
  float values[kCount];

  __device__ LaneRow() {
    for (float& value : values) value = 0;
  }
  template <typename T>
  __device__ LaneRow(const T* from, int64_t head_dim) {
    for (int i = 0; i < kCount; ++i) {
      const int64_t place = threadIdx.x % kWarp + i * kWarp;
      values[i] = place < head_dim ? to_float(from[place]) : 0.0f;
    }
  }
  template <typename T>
  __device__ void store(T* to, int64_t head_dim) const {
    for (int i = 0; i < kCount; ++i) {
      const int64_t place = threadIdx.x % kWarp + i * kWarp;
      if (place < head_dim) to[place] = from_float<T>(values[i]);
    }
  }
  // Every lane gets the result.
  __device__ float dot(const LaneRow& other) const {
    float sum = 0;
    for (int i = 0; i < kCount; ++i) sum += values[i] * other.values[i];
    return warp_sum(sum);
  }
  __device__ void scale(float factor) {
    for (float& value : values) value *= factor;
  }
  __device__ void add(float factor, const LaneRow& other) {
    for (int i = 0; i < kCount; ++i) values[i] += factor * other.values[i];
  }
};

// The row that a warp processes, in blocks of kBlockRows.
__device__ inline int64_t warp_row() {
  return static_cast<int64_t>(blockIdx.x) * kBlockRows + threadIdx.x / kWarp;
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kBlock)
    forward_rows(HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v, const int32_t* start, RowShape shape,
                 HeadRows<T> out, float* log_sum_exp, int64_t statistics_stride) {
  await_earlier_kernels();
  const int64_t row = warp_row();
  const int64_t head = blockIdx.y;
  if (row >= shape.rows) return;  // the whole warp returns, and the block has no barrier
  const LaneRow<kCount> query(q.at(row, head), shape.head_dim);
  LaneRow<kCount> sums;
  float maximum = -INFINITY;
  float total = 0;
  for (int64_t key = start[row]; key <= row + shape.key_offset; ++key) {
    const float score = shape.scale * query.dot({k.at(key, head / shape.group), shape.head_dim});
    if (score > maximum) {
      const float shrink = expf(maximum - score);
      total *= shrink;
      sums.scale(shrink);
      maximum = score;
    }
    const float weight = expf(score - maximum);
    total += weight;
    sums.add(weight, {v.at(key, head / shape.group), shape.head_dim});
  }
  sums.scale(1 / total);
  sums.store(out.at(row, head), shape.head_dim);
  if (threadIdx.x % kWarp == 0) log_sum_exp[head * statistics_stride + row] = maximum + logf(total);
}

// What the backward reads.
template <typename T>
struct Saved {
  HeadRows<const T> d_out, q, k, v, out;
  const float* log_sum_exp;
  int64_t statistics_stride;
  const int32_t* start;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kBlock) backward_queries(Saved<T> saved, RowShape shape, HeadRows<T> d_q) {
  await_earlier_kernels();
  const int64_t row = warp_row();
  const int64_t head = blockIdx.y;
  if (row >= shape.rows) return;
  const LaneRow<kCount> query(saved.q.at(row, head), shape.head_dim);
  const LaneRow<kCount> d_out(saved.d_out.at(row, head), shape.head_dim);
  const float delta = d_out.dot({saved.out.at(row, head), shape.head_dim});
  const float log_sum = saved.log_sum_exp[head * saved.statistics_stride + row];
  LaneRow<kCount> sums;
  for (int64_t key = saved.start[row]; key <= row; ++key) {
    const LaneRow<kCount> key_row(saved.k.at(key, head / shape.group), shape.head_dim);
    const float p = expf(shape.scale * query.dot(key_row) - log_sum);
    const float d_p = d_out.dot({saved.v.at(key, head / shape.group), shape.head_dim});
    sums.add(p * (d_p - delta) * shape.scale, key_row);
  }
  sums.store(d_q.at(row, head), shape.head_dim);
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kBlock, 1)
    backward_keys(Saved<T> saved, RowShape shape, HeadRows<T> d_k, HeadRows<T> d_v) {
  await_earlier_kernels();
  const int64_t row = warp_row();
  const int64_t kv_head = blockIdx.y;
  if (row >= shape.rows) return;
  const LaneRow<kCount> key(saved.k.at(row, kv_head), shape.head_dim);
  const LaneRow<kCount> value(saved.v.at(row, kv_head), shape.head_dim);
  LaneRow<kCount> key_sums, value_sums;
  // Rows of other samples start after this one.
  for (int64_t head = kv_head * shape.group; head < (kv_head + 1) * shape.group; ++head) {
    for (int64_t seen = row; seen < shape.rows && saved.start[seen] <= row; ++seen) {
      const LaneRow<kCount> query(saved.q.at(seen, head), shape.head_dim);
      const LaneRow<kCount> d_out(saved.d_out.at(seen, head), shape.head_dim);
      const float delta = d_out.dot({saved.out.at(seen, head), shape.head_dim});
      const float p = expf(shape.scale * query.dot(key) - saved.log_sum_exp[head * saved.statistics_stride + seen]);
      key_sums.add(p * (d_out.dot(value) - delta) * shape.scale, query);
      value_sums.add(p, d_out);
    }
  }
  key_sums.store(d_k.at(row, kv_head), shape.head_dim);
  value_sums.store(d_v.at(row, kv_head), shape.head_dim);
}

// result[t] = start[t] − the first row of t's sample.
__global__ void __launch_bounds__(kBlock)
    starts_in_samples(const int32_t* start, int64_t rows, int64_t length, int32_t* result) {
  await_earlier_kernels();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (row < rows) result[row] = static_cast<int32_t>(start[row] - row / length * length);
}

int64_t blocks_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// Calls body(number of elements per lane), which is a compile-time constant.
template <typename Body>
void for_lane_count(const char* name, int64_t head_dim, Body&& body) {
  CHECK(head_dim <= kMostHeadDimOnCuda, name, ": head_dim ", head_dim, " is above ", kMostHeadDimOnCuda);
  if (head_dim <= kWarp) {
    body(std::integral_constant<int, 1>{});
  } else if (head_dim <= 2 * kWarp) {
    body(std::integral_constant<int, 2>{});
  } else if (head_dim <= 4 * kWarp) {
    body(std::integral_constant<int, 4>{});
  } else {
    body(std::integral_constant<int, 8>{});
  }
}

RowShape row_shape(const ConstTensor& q, const ConstTensor& k, const AttentionShape& shape) {
  return {.rows = q.extent(0),
          .head_dim = q.extent(2),
          .group = q.extent(1) / k.extent(1),
          .key_offset = shape.key_offset,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.extent(2))))};
}

// ---- cuDNN ----------------------------------------------------------------------------------------------------------

HeadStrides strides_of(const ConstTensor& x) {
  return {x.stride(0), x.stride(1)};
}

// Whether cuDNN may be asked for a plan, judging by the tensors' types and the layout of their rows.
bool may_be_planned(std::initializer_list<ConstTensor> rows, const ConstTensor& log_sum_exp,
                    const AttentionShape& shape) {
  const auto aligned = [](const ConstTensor& x) { return reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0; };
  for (const ConstTensor& tensor : rows) {
    if (tensor.dtype() != DType::bfloat16 || !in_packs({tensor})) return false;
  }
  // For samples of one row, cuDNN 9.19 returns NaN in d_q (seen on an H200).
  return shape.key_offset == 0 && shape.sequence_length > 1 && aligned(log_sum_exp);
}

AttentionProblem problem_of(const CudaContext& context, AttentionPass pass, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                            const ConstTensor& out, const ConstTensor& log_sum_exp, const AttentionShape& shape) {
  return {.pass = pass,
          .samples = q.extent(0) / shape.sequence_length,
          .length = shape.sequence_length,
          .heads = q.extent(1),
          .kv_heads = k.extent(1),
          .head_dim = q.extent(2),
          .documents = shape.documents,
          .deterministic = context.deterministic,
          .q = strides_of(q),
          .k = strides_of(k),
          .v = strides_of(v),
          .out = strides_of(out),
          .statistics = log_sum_exp.stride(0)};
}

// Returns whether cuDNN ran it. The starts that a plan reads are at the beginning of the scratch; the plan uses the
// rest.
bool ran_plan(const CudaContext& context, const char* name, const AttentionProblem& problem, const ConstTensor& start,
              std::map<AttentionTensor, void*> tensors, const Tensor& scratch) {
  const int64_t rows = start.extent(0);
  const int64_t taken = problem.documents ? blocks_of(rows, 64) * 64 : 0;
  const Tensor rest = scratch.rows(taken, scratch.count() - taken);
  if (!context.attention->serves(problem, rest.bytes())) return false;
  if (problem.documents) {
    auto* in_samples = static_cast<int32_t*>(scratch.raw());
    launch_kernel(name, starts_in_samples, {blocks_of(rows, kBlock)}, kBlock, context.stream,
                  device_data<int32_t>(start), rows, problem.length, in_samples);
    tensors[kStart] = in_samples;
  }
  context.attention->run(context.stream, problem, tensors, rest);
  return true;
}

void* raw(const ConstTensor& tensor) {
  return const_cast<void*>(tensor.raw());
}

}  // namespace

void attention_forward(const CudaContext& context, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                       AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch) {
  constexpr const char* kName = "attention_forward";
  if (q.extent(0) == 0) return;
  if (context.attention != nullptr && may_be_planned({q, k, v, out}, log_sum_exp, shape)) {
    const AttentionProblem problem = problem_of(context, AttentionPass::forward, q, k, v, out, log_sum_exp, shape);
    if (ran_plan(
            context, kName, problem, start,
            {{kQuery, raw(q)}, {kKey, raw(k)}, {kValue, raw(v)}, {kOut, raw(out)}, {kStatistics, raw(log_sum_exp)}},
            scratch)) {
      return;
    }
  }
  const Grid grid{blocks_of(q.extent(0), kBlockRows), q.extent(1)};
  for_device_type(kName, q.dtype(), [&](auto element) {
    using T = decltype(element);
    for_lane_count(kName, q.extent(2), [&](auto count) {
      launch_kernel(kName, forward_rows<T, count>, grid, kBlock, context.stream, head_rows<T>(q), head_rows<T>(k),
                    head_rows<T>(v), device_data<int32_t>(start), row_shape(q, k, shape), head_rows<T>(out),
                    device_data<float>(log_sum_exp), log_sum_exp.stride(0));
    });
  });
}

void attention_backward(const CudaContext& context, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v,
                        ConstTensor out, ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q,
                        Tensor d_k, Tensor d_v, Tensor scratch) {
  constexpr const char* kName = "attention_backward";
  if (q.extent(0) == 0) return;
  if (context.attention != nullptr && may_be_planned({q, k, v, out, d_out, d_q, d_k, d_v}, log_sum_exp, shape)) {
    AttentionProblem problem = problem_of(context, AttentionPass::backward, q, k, v, out, log_sum_exp, shape);
    problem.d_out = strides_of(d_out);
    problem.d_q = strides_of(d_q);
    problem.d_k = strides_of(d_k);
    problem.d_v = strides_of(d_v);
    if (ran_plan(context, kName, problem, start,
                 {{kQuery, raw(q)},
                  {kKey, raw(k)},
                  {kValue, raw(v)},
                  {kOut, raw(out)},
                  {kStatistics, raw(log_sum_exp)},
                  {kOutGradient, raw(d_out)},
                  {kQueryGradient, raw(d_q)},
                  {kKeyGradient, raw(d_k)},
                  {kValueGradient, raw(d_v)}},
                 scratch)) {
      return;
    }
  }
  const int64_t blocks = blocks_of(q.extent(0), kBlockRows);
  for_device_type(kName, q.dtype(), [&](auto element) {
    using T = decltype(element);
    const Saved<T> saved{head_rows<T>(d_out),   head_rows<T>(q),
                         head_rows<T>(k),       head_rows<T>(v),
                         head_rows<T>(out),     device_data<float>(log_sum_exp),
                         log_sum_exp.stride(0), device_data<int32_t>(start)};
    const RowShape rows = row_shape(q, k, shape);
    for_lane_count(kName, q.extent(2), [&](auto count) {
      launch_kernel("attention_backward_queries", backward_queries<T, count>, {blocks, q.extent(1)}, kBlock,
                    context.stream, saved, rows, head_rows<T>(d_q));
      launch_kernel("attention_backward_keys", backward_keys<T, count>, {blocks, k.extent(1)}, kBlock, context.stream,
                    saved, rows, head_rows<T>(d_k), head_rows<T>(d_v));
    });
  });
}

}  // namespace shiftron::cuda
