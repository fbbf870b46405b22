// Engines of cuDNN for attention's graphs: lists those available on a device, or for the description of one, and builds
// plans with them. Does not need the CUDA runtime.
#pragma once

#include "kernels/attention_graph_cuda.h"

namespace shiftron::cuda {

// Either the device of a handle, or a device described in JSON: for the latter plans can be built but not executed.
struct AttentionTarget {
  cudnnHandle_t handle = nullptr;
  std::string description;
};

// Error(bad_input) if the loaded cuDNN is older than the graphs require. Older versions give wrong gradients without a
// message: before 9.6 sums of d_q must start as zeros, before 9.10 masks need finite numbers, up to 9.15 lengths that
// are not multiples of 128 need their own mask (NVIDIA's cudnn-frontend, scaled_dot_product_flash_attention.h).
void require_known_dnn();

// In the library's ranking; for a deterministic problem without the engines that it calls nondeterministic. Empty if
// the library knows no engine for the graph.
std::vector<AttentionChoice> offered_engines(const AttentionProblem& problem, const AttentionTarget& target);

// Memory that a plan needs in addition to its tensors and workspace: bytes, multiples of 256.
struct PlanMemory {
  explicit PlanMemory(const AttentionProblem& problem);
  int64_t bytes() const { return delta + query_sum; }
  int64_t delta = 0, query_sum = 0;  // for kDelta and kQuerySum; 0 if the graph has none
};

class AttentionPlan {
 public:
  // Error if the library refuses.
  AttentionPlan(const AttentionProblem& problem, const AttentionTarget& target, const AttentionChoice& choice);

  int64_t workspace() const { return workspace_; }  // bytes
  // Runs in the order of the handle's stream. `tensors`: all except the scalars.
  void execute(cudnnHandle_t handle, const std::map<AttentionTensor, void*>& tensors, void* workspace) const;

 private:
  AttentionProblem problem_;
  std::vector<Descriptor> parts_;  // of the graph, and what it was planned with
  cudnnBackendDescriptor_t plan_;  // one of them
  int64_t workspace_;
};

}  // namespace shiftron::cuda
