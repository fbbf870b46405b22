// Causal attention as graphs of cuDNN's backend, built from primitive operations. Does not need the CUDA runtime.
#pragma once

#include "kernels/attention_choices.h"
#include "kernels/attention_descriptors_cuda.h"

namespace shiftron::cuda {

// What a plan reads and writes: the ids of its tensors. In kStart rows count from 0 within their sample.
enum AttentionTensor : int64_t {
  kQuery = 1,  // [rows, heads, head_dim] bfloat16, like kOut, kOutGradient, kQueryGradient
  kKey,        // [rows, kv_heads, head_dim] bfloat16, like kValue, kKeyGradient, kValueGradient
  kValue,
  kStart,       // [rows] int32: first key row that a row sees, within its sample; only for problems with documents
  kOut,         // read by the backward
  kStatistics,  // [heads, rows] float32: log_sum_exp; read by the backward
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kDelta,     // [samples, heads, length] float32: memory that the backward needs
  kQuerySum,  // [samples, heads, length, head_dim] float32: also for the backward, unless it is deterministic
  kScale,     // scalars passed by value
  kMinusInfinity,
  kOne,
};

// `handle`: null for a described device.
cudnnBackendDescriptor_t attention_graph(Maker& maker, const AttentionProblem& problem, cudnnHandle_t handle);

}  // namespace shiftron::cuda
