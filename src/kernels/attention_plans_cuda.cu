// Choices and plans, the pieces of a problem, and where a plan's memory is in the scratch.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/call_cuda.h"
#include "core/check.h"
#include "kernels/attention_plans_cuda.h"

namespace shiftron {
namespace {

using Tensors = std::map<cuda::AttentionTensor, void*>;

constexpr size_t kMostPlans = 256;  // samples of evaluations may have many different lengths
constexpr int64_t kAlignment = 16;  // bytes, of the memory of a graph's tensors

// The tensors of the piece that begins with this sample and this KV head.
Tensors tensors_of_piece(const AttentionProblem& problem, const Tensors& whole, int64_t sample, int64_t kv_head) {
  const int64_t row = sample * problem.length;
  const int64_t head = kv_head * (problem.heads / problem.kv_heads);
  Tensors tensors = whole;
  const auto move = [&](cuda::AttentionTensor which, int64_t elements, DType type) {
    const auto found = tensors.find(which);
    if (found != tensors.end()) found->second = static_cast<char*>(found->second) + elements * size_of(type);
  };
  const auto move_rows = [&](cuda::AttentionTensor which, const HeadStrides& of, int64_t first_head) {
    move(which, row * of.row + first_head * of.head, DType::bfloat16);
  };
  move_rows(cuda::kQuery, problem.q, head);
  move_rows(cuda::kOut, problem.out, head);
  move_rows(cuda::kOutGradient, problem.d_out, head);
  move_rows(cuda::kQueryGradient, problem.d_q, head);
  move_rows(cuda::kKey, problem.k, kv_head);
  move_rows(cuda::kValue, problem.v, kv_head);
  move_rows(cuda::kKeyGradient, problem.d_k, kv_head);
  move_rows(cuda::kValueGradient, problem.d_v, kv_head);
  move(cuda::kStart, row, DType::int32);
  move(cuda::kStatistics, head * problem.statistics + row, DType::float32);
  return tensors;
}

void check_alignment(const AttentionProblem& problem, const AttentionProblem& piece) {
  const int64_t of_sample = problem.length * size_of(DType::float32);
  const int64_t of_head = problem.statistics * size_of(DType::float32);
  const bool aligned = (piece.samples == problem.samples || of_sample % kAlignment == 0) &&
                       (piece.kv_heads == problem.kv_heads || of_head % kAlignment == 0);
  if (!aligned) throw cuda::UnsupportedProblem("unaligned pieces: " + problem.text());
}

}  // namespace

CudaAttention::CudaAttention(const std::string& device, int64_t most_scores) : most_scores_(most_scores) {
  cuda::require_known_dnn();
  const cudnnStatus_t status = cudnnCreate(&handle_);
  if (status != CUDNN_STATUS_SUCCESS) cuda::throw_dnn(status, "cudnnCreate", "attention");
  choices_.device = device;
  choices_.library = static_cast<int64_t>(cudnnGetVersion());
}

void CudaAttention::time_candidates(bool timed) {
  if (timed && !timed_) cold_.take();
  if (!timed) cold_.free();
  timed_ = timed;
}

CudaAttention::~CudaAttention() {
  plans_.clear();
  cudnnDestroy(handle_);
}

bool CudaAttention::serves(const AttentionProblem& problem, int64_t room) {
  const AttentionProblem piece = cuda::attention_piece(problem, most_scores_);
  if (plans_.contains(piece)) return true;
  if (refused_.contains(piece)) return false;
  std::vector<Candidate> candidates;
  const auto known = choices_.of.find(piece);
  if (known != choices_.of.end()) {
    candidates.push_back(planned(piece, known->second));
  } else {
    try {
      check_alignment(problem, piece);
      candidates = plan(piece, room);
    } catch (const cuda::UnsupportedProblem& refusal) {
      refused_.insert(piece);
      refusals_.emplace_back(refusal.what());
      return false;
    }
  }
  keep(piece, std::move(candidates));
  return true;
}

// Returns all engines that can be planned if they will be timed, otherwise the first one; at least one.
std::vector<CudaAttention::Candidate> CudaAttention::plan(const AttentionProblem& piece, int64_t room) {
  const int64_t left = room - cuda::PlanMemory(piece).bytes();
  std::vector<Candidate> candidates;
  std::vector<std::string> without_memory;
  std::string reasons;
  for (const AttentionChoice& choice : cuda::offered_engines(piece, {handle_, {}})) {
    if (!candidates.empty() && !timed_) break;
    try {
      if (choice.workspace > left) {
        without_memory.push_back(detail::concatenate("engine ", choice.engine, " needs a workspace of ",
                                                     choice.workspace, " bytes, but only ", left, " are free"));
        throw cuda::UnsupportedProblem(without_memory.back());
      }
      candidates.push_back(planned(piece, choice));
    } catch (const cuda::UnsupportedProblem& refusal) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(refusal.what());
    }
  }
  if (candidates.empty()) {
    throw cuda::UnsupportedProblem(detail::concatenate("cuDNN ", choices_.library, " has no plan for ", piece.text(),
                                                       ": ", reasons.empty() ? "no engine" : reasons));
  }
  if (timed_) {
    for (const std::string& engine : without_memory) untimed_.push_back(engine + " for " + piece.text());
  }
  return candidates;
}

CudaAttention::Candidate CudaAttention::planned(const AttentionProblem& piece, const AttentionChoice& choice) const {
  return {choice, std::make_unique<cuda::AttentionPlan>(piece, cuda::AttentionTarget{handle_, {}}, choice)};
}

void CudaAttention::run(CUstream_st* stream, const AttentionProblem& problem, const Tensors& tensors, Tensor scratch) {
  const AttentionProblem piece = cuda::attention_piece(problem, most_scores_);
  const auto found = plans_.find(piece);
  CHECK(found != plans_.end(), "no plan for ", problem.text());
  std::vector<Candidate>& candidates = found->second.candidates;
  found->second.last_use = ++uses_;
  stream_ = stream;
  cuda::check_dnn(cudnnSetStream(handle_, stream), "cudnnSetStream", problem);

  const cuda::PlanMemory own(piece);
  char* const memory = static_cast<char*>(scratch.raw());
  const auto execute = [&](const Candidate& candidate, int64_t sample, int64_t kv_head) {
    const int64_t needed = own.bytes() + candidate.plan->workspace();
    CHECK(needed <= scratch.bytes(), problem.text(), " needs ", needed, " bytes of scratch, but has ", scratch.bytes());
    Tensors of_piece = tensors_of_piece(problem, tensors, sample, kv_head);
    if (own.delta > 0) of_piece[cuda::kDelta] = memory;
    if (own.query_sum > 0) of_piece[cuda::kQuerySum] = memory + own.delta;
    candidate.plan->execute(handle_, of_piece, memory + own.bytes());
  };
  if (candidates.size() > 1 && !choices_.of.contains(piece)) {  // each candidate writes all results
    size_t failed = 0;
    // A candidate that fails is skipped. If the device is lost, all of them fail.
    std::erase_if(candidates, [&](Candidate& candidate) {
      try {
        candidate.choice.seconds = cuda::seconds_of(stream, cold_, [&] { execute(candidate, 0, 0); });
        return false;
      } catch (const cuda::FailedExecution& failure) {
        if (candidates.size() == ++failed) throw;
        untimed_.push_back(detail::concatenate("engine ", candidate.choice.engine, " fails: ", failure.what()));
        return true;
      }
    });
    std::ranges::sort(candidates, {}, [](const Candidate& candidate) { return candidate.choice.seconds; });
  }
  choices_.of.emplace(piece, candidates.front().choice);
  for (int64_t sample = 0; sample < problem.samples; sample += piece.samples) {
    for (int64_t kv_head = 0; kv_head < problem.kv_heads; kv_head += piece.kv_heads) {
      execute(candidates.front(), sample, kv_head);
    }
  }
}

// Makes room for one more plan by removing the least recently used one.
void CudaAttention::make_room() {
  if (plans_.size() < kMostPlans) return;
  wait();
  plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& entry) { return entry.second.last_use; }));
}

void CudaAttention::keep(const AttentionProblem& piece, std::vector<Candidate> candidates) {
  make_room();
  plans_[piece] = {std::move(candidates), ++uses_};
}

// A plan must outlive its executions.
void CudaAttention::wait() const {
  if (stream_ != nullptr) cuda::check_call(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void CudaAttention::adopt(const AttentionChoices& choices) {
  choices_.adopt(choices, "attention was", "cuDNN");
  wait();
  for (auto& [piece, plans] : plans_) {
    const auto known = choices_.of.find(piece);
    if (known == choices_.of.end()) continue;
    std::vector<Candidate>& candidates = plans.candidates;
    const auto same = std::ranges::find_if(
        candidates, [&](const Candidate& candidate) { return candidate.choice.same_plan(known->second); });
    Candidate taken = same != candidates.end() ? std::move(*same) : planned(piece, known->second);
    candidates.clear();
    candidates.push_back(std::move(taken));
  }
  for (const auto& [piece, choice] : choices.of) {
    if (!refused_.contains(piece)) continue;
    std::vector<Candidate> candidates;
    candidates.push_back(planned(piece, choice));
    keep(piece, std::move(candidates));
    refused_.erase(piece);
  }
}

}  // namespace shiftron
