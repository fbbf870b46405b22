// Attention by cuDNN on one CUDA stream: the engine for each shape is chosen once and kept with its plan.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/attention_engine_cuda.h"
#include "kernels/scratch.h"
#include "kernels/timing_cuda.h"

namespace shiftron {

// Belongs to one stream; one thread launches. The code that creates the stream owns it and destroys it after its last
// attention.
class CudaAttention {
 public:
  // `device` is a name. Deterministic backwards run in pieces that keep at most most_scores bytes of scores.
  explicit CudaAttention(const std::string& device, int64_t most_scores = cuda::kMostScores);
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // Whether cuDNN has a plan that needs at most `room` bytes of scratch; the first query builds the plan. If not,
  // refusals() says why. An adopted choice that cannot be planned is an Error.
  bool serves(const AttentionProblem& problem, int64_t room);
  // Runs a problem that is served, in the stream's order. `tensors`: all except kDelta, kQuerySum and the scalars.
  // scratch [bytes / 4] float32, at least the `room` that was given to serves().
  void run(CUstream_st* stream, const AttentionProblem& problem, const std::map<cuda::AttentionTensor, void*>& tensors,
           Tensor scratch);

  // While true, the first run of a problem without a choice times the engines that the library offers and waits for
  // them. While false (the default), such a problem takes the first engine that can be planned.
  void time_candidates(bool timed);
  const AttentionChoices& choices() const { return choices_; }
  // From now on problems use these choices, including problems that were already planned. Plans that change are built
  // here, because loading one may wait for the whole device. Error(bad_input) if they are for another device or library
  // version.
  void adopt(const AttentionChoices& choices);

  const std::vector<std::string>& refusals() const { return refusals_; }
  // Engines that should have been timed but were not, because they needed more memory than there was, or failed.
  const std::vector<std::string>& untimed() const { return untimed_; }

 private:
  struct Candidate {
    AttentionChoice choice;
    std::unique_ptr<cuda::AttentionPlan> plan;
  };
  struct Planned {
    std::vector<Candidate> candidates;  // the first is used; slower ones are kept in case their choice is adopted
    int64_t last_use = 0;
  };

  std::vector<Candidate> plan(const AttentionProblem& piece, int64_t room);
  Candidate planned(const AttentionProblem& piece, const AttentionChoice& choice) const;
  void keep(const AttentionProblem& piece, std::vector<Candidate> candidates);
  void make_room();
  void wait() const;

  cudnnHandle_t handle_ = nullptr;
  int64_t most_scores_;
  bool timed_ = false;
  cuda::ColdCache cold_;
  CUstream_st* stream_ = nullptr;  // of the last run
  AttentionChoices choices_;
  std::map<AttentionProblem, Planned> plans_;
  int64_t uses_ = 0;
  std::set<AttentionProblem> refused_;
  std::vector<std::string> refusals_, untimed_;
};

}  // namespace shiftron
