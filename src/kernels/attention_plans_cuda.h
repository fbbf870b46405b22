// Attention of one CUDA stream by cuDNN: the engine of each shape is chosen once and kept, and so is its plan.
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

// Of one stream; one thread hands over. Whoever makes the stream owns it, and destroys it behind its last attention.
class CudaAttention {
 public:
  // `device` is a name. Deterministic backwards go in pieces that keep at most so many bytes of scores.
  explicit CudaAttention(const std::string& device, int64_t most_scores = cuda::kMostScores);
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // Whether cuDNN has a plan, which is made at the first question, that does with `room` bytes of scratch. Where not,
  // refusals() says why; but a choice that was adopted and cannot be planned is an Error.
  bool serves(const AttentionProblem& problem, int64_t room);
  // In the stream's order, of a problem that is served. `tensors`: all but kDelta, kQuerySum and the numbers; scratch
  // [bytes / 4] float32, of at least the room that was named.
  void run(CUstream_st* stream, const AttentionProblem& problem, const std::map<cuda::AttentionTensor, void*>& tensors,
           Tensor scratch);

  // While true the first run of a problem without a choice times the engines that the library offers and waits for
  // them. While false (as it begins) such a problem takes the first that can be planned.
  void time_candidates(bool timed);
  const AttentionChoices& choices() const { return choices_; }
  // From now on problems take these, those planned before too, whose plans are made here where they are others: to load
  // one may wait for the whole device. Error(bad_input) where device or library are others.
  void adopt(const AttentionChoices& choices);

  const std::vector<std::string>& refusals() const { return refusals_; }
  // Engines that were to be timed and were not: they ask for more memory than there is, or fail.
  const std::vector<std::string>& untimed() const { return untimed_; }

 private:
  struct Candidate {
    AttentionChoice choice;
    std::unique_ptr<cuda::AttentionPlan> plan;
  };
  struct Planned {
    std::vector<Candidate> candidates;  // the first is taken; slower ones stay for what may be adopted
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
