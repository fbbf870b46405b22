// Causal attention as graphs of cuDNN's backend: built of primitive operations, planned for a device, or for the
// description of one, and executed. Needs nothing of CUDA's runtime.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace shiftron::cuda {

// Elements from one row, and from one head, of a [rows, heads, head_dim] tensor to the next.
struct HeadStrides {
  int64_t row = 0, head = 0;
  auto operator<=>(const HeadStrides&) const = default;
};

enum class AttentionPass { forward, backward };

// Of what a plan is made once. bfloat16, rows = samples · length.
struct AttentionProblem {
  AttentionPass pass = AttentionPass::forward;
  int64_t samples = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  HeadStrides q{}, k{}, v{}, out{};
  HeadStrides d_out{}, d_q{}, d_k{}, d_v{};  // of the backward
  int64_t statistics = 0;                    // elements from one head of log_sum_exp to the next
  auto operator<=>(const AttentionProblem&) const = default;
  std::string text() const;
};

// What a plan reads and writes; the numbers of its tensors. Rows of a sample count from 0 in kStart.
enum AttentionTensor : int64_t {
  kQuery = 1,  // [rows, heads, head_dim] bfloat16, as kOut, kOutGradient, kQueryGradient
  kKey,        // [rows, kv_heads, head_dim] bfloat16, as kValue, kKeyGradient, kValueGradient
  kValue,
  kStart,       // [rows] int32: first key row that a row sees, within its sample
  kOut,         // the backward reads it
  kStatistics,  // [heads, rows] float32: log_sum_exp; the backward reads it
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kDelta,     // [samples, heads, length] float32: memory that the backward needs
  kQuerySum,  // [samples, heads, length, head_dim] float32: the same
  kScale,     // numbers by value
  kMinusInfinity,
  kOne,
};

// A descriptor of the backend, destroyed with its owner.
struct DestroyDescriptor {
  void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// What the library does not serve; other failures of it are Errors alone.
struct Unserved : Error {
  explicit Unserved(const std::string& message) : Error(message, ExitCode::crash) {}
};

// Throws what cuDNN says of a failed call, with the call and what it was for.
void check_dnn(cudnnStatus_t status, const char* call, const std::string& about);

class AttentionPlan {
 public:
  // The first configuration that the library offers for the device behind `handle`. Error where it offers none.
  AttentionPlan(const AttentionProblem& problem, cudnnHandle_t handle);
  // The same for the device that JSON describes; only to learn whether there is a plan, and its workspace.
  AttentionPlan(const AttentionProblem& problem, const std::string& device_properties);

  int64_t workspace() const { return workspace_; }  // bytes
  // In the order of the handle's stream. `tensors`: all but the numbers.
  void execute(cudnnHandle_t handle, const std::map<AttentionTensor, void*>& tensors, void* workspace) const;

 private:
  void plan(cudnnHandle_t handle);

  AttentionProblem problem_;
  std::vector<Descriptor> parts_;              // of the graph, and what it was planned with
  cudnnBackendDescriptor_t device_ = nullptr;  // one of them, where a description is planned for
  cudnnBackendDescriptor_t plan_ = nullptr;    // one of them
  int64_t workspace_ = 0;
};

}  // namespace shiftron::cuda
