// Plans, and where in the scratch they find what they ask for.
#include "core/check.h"
#include "kernels/attention_plans_cuda.h"

namespace shiftron {
namespace {

constexpr size_t kMostPlans = 256;  // samples of evaluations may have many lengths

// Pieces of a tensor's bytes, one behind another, each at a multiple of 256.
class Pieces {
 public:
  explicit Pieces(const Tensor& memory) : memory_(memory) {}

  void* take(int64_t bytes) {
    void* piece = static_cast<char*>(memory_.raw()) + taken_;
    taken_ += (bytes + 255) / 256 * 256;
    return piece;
  }
  void check(const std::string& about) const {
    CHECK(taken_ <= memory_.bytes(), taken_, " bytes of scratch, there are ", memory_.bytes(), " for ", about);
  }

 private:
  const Tensor& memory_;
  int64_t taken_ = 0;
};

}  // namespace

CudaAttention::CudaAttention() {
  cuda::check_dnn(cudnnCreate(&handle_), "cudnnCreate", "attention");
}

CudaAttention::~CudaAttention() {
  plans_.clear();
  cudnnDestroy(handle_);
}

bool CudaAttention::serves(const cuda::AttentionProblem& problem) {
  const auto found = plans_.find(problem);
  if (found != plans_.end()) return found->second != nullptr;
  if (plans_.size() >= kMostPlans) plans_.clear();
  std::unique_ptr<cuda::AttentionPlan> plan;
  try {
    plan = std::make_unique<cuda::AttentionPlan>(problem, handle_);
  } catch (const cuda::Unserved& refusal) {
    refusals_.emplace_back(refusal.what());
  }
  return plans_.emplace(problem, std::move(plan)).first->second != nullptr;
}

void CudaAttention::run(CUstream_st* stream, const cuda::AttentionProblem& problem,
                        std::map<cuda::AttentionTensor, void*> tensors, Tensor scratch) {
  const auto found = plans_.find(problem);
  CHECK(found != plans_.end() && found->second != nullptr, "no plan for ", problem.text());
  const cuda::AttentionPlan& plan = *found->second;
  Pieces pieces(scratch);
  if (problem.pass == cuda::AttentionPass::backward) {
    const int64_t rows = problem.samples * problem.length * problem.heads;
    tensors[cuda::kDelta] = pieces.take(rows * size_of(DType::float32));
    tensors[cuda::kQuerySum] = pieces.take(rows * problem.head_dim * size_of(DType::float32));
  }
  void* workspace = pieces.take(plan.workspace());
  pieces.check(problem.text());
  cuda::check_dnn(cudnnSetStream(handle_, stream), "cudnnSetStream", problem.text());
  plan.execute(handle_, tensors, workspace);
}

}  // namespace shiftron
