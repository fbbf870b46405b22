// Engines of cuDNN for attention's graphs: which there are for a device, or for the description of one, and plans made
// with them. Needs nothing of CUDA's runtime.
#pragma once

#include "kernels/attention_graph_cuda.h"

namespace shiftron::cuda {

// The device behind a handle, or one that JSON describes: for that one plans can be made, but not executed.
struct AttentionTarget {
  cudnnHandle_t handle = nullptr;
  std::string description;
};

// Error(bad_input) where the loaded cuDNN is older than the graph was made for: before 9.6 sums of d_q must begin as
// zeros, before 9.10 masks need finite numbers, up to 9.15 lengths of no multiple of 128 need a mask of their own (NVIDIA's
// cudnn-frontend, scaled_dot_product_flash_attention.h): wrong gradients, in silence.
void require_known_dnn();

// As the library ranks them, without those that it calls nondeterministic where the problem is not to be; none where it
// knows no engine for the graph.
std::vector<AttentionChoice> offered_engines(const AttentionProblem& problem, const AttentionTarget& target);

// Memory that a plan is given beside its tensors and its workspace: bytes, multiples of 256.
struct PlanMemory {
  explicit PlanMemory(const AttentionProblem& problem);
  int64_t bytes() const { return delta + query_sum; }
  int64_t delta = 0, query_sum = 0;  // of kDelta and kQuerySum; 0 where the graph has none
};

class AttentionPlan {
 public:
  // Error where the library refuses.
  AttentionPlan(const AttentionProblem& problem, const AttentionTarget& target, const AttentionChoice& choice);

  int64_t workspace() const { return workspace_; }  // bytes
  // In the order of the handle's stream. `tensors`: all but the numbers.
  void execute(cudnnHandle_t handle, const std::map<AttentionTensor, void*>& tensors, void* workspace) const;

 private:
  AttentionProblem problem_;
  std::vector<Descriptor> parts_;  // of the graph, and what it was planned with
  cudnnBackendDescriptor_t plan_;  // one of them
  int64_t workspace_;
};

}  // namespace shiftron::cuda
