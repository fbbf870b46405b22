// Attention of one CUDA stream by cuDNN: the plan of each shape is made once and kept.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/attention_graph_cuda.h"

namespace shiftron {

// Of one stream; one thread hands over. Whoever makes the stream owns it, and destroys it behind its last attention.
class CudaAttention {
 public:
  CudaAttention();
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // Whether cuDNN has a plan, which is made at the first question. Where not, refusals() says why.
  bool serves(const cuda::AttentionProblem& problem);
  // In the stream's order, of a problem that is served. `tensors`: all but kDelta, kQuerySum and the numbers; scratch
  // [bytes / 4] float32. Error where that is too little.
  void run(CUstream_st* stream, const cuda::AttentionProblem& problem, std::map<cuda::AttentionTensor, void*> tensors,
           Tensor scratch);

  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::map<cuda::AttentionProblem, std::unique_ptr<cuda::AttentionPlan>> plans_;  // null: refused
  std::vector<std::string> refusals_;
};

}  // namespace shiftron
