// Causal attention as graphs of cuDNN's backend, built of primitive operations. Needs nothing of CUDA's runtime.
#pragma once

#include "kernels/attention_choices.h"
#include "kernels/attention_descriptors_cuda.h"

namespace shiftron::cuda {

// What a plan reads and writes; the numbers of its tensors. Rows of a sample count from 0 in kStart.
enum AttentionTensor : int64_t {
  kQuery = 1,  // [rows, heads, head_dim] bfloat16, as kOut, kOutGradient, kQueryGradient
  kKey,        // [rows, kv_heads, head_dim] bfloat16, as kValue, kKeyGradient, kValueGradient
  kValue,
  kStart,       // [rows] int32: first key row that a row sees, within its sample; of problems with documents
  kOut,         // the backward reads it
  kStatistics,  // [heads, rows] float32: log_sum_exp; the backward reads it
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kDelta,     // [samples, heads, length] float32: memory that the backward needs
  kQuerySum,  // [samples, heads, length, head_dim] float32: the same, unless it is deterministic
  kScale,     // numbers by value
  kMinusInfinity,
  kOne,
};

// `handle`: null where a device is described.
cudnnBackendDescriptor_t attention_graph(Maker& maker, const AttentionProblem& problem, cudnnHandle_t handle);

}  // namespace shiftron::cuda
