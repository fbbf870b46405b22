// TokenScorer: log-probabilities of asked tokens by a model in any layout, forward alone, through the pipeline of
// training.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/host.h"
#include "evaluate/probe_head.h"
#include "evaluate/score_journal.h"
#include "evaluate/score_plan.h"
#include "train/engine.h"

namespace shiftron {

// Of a pass: in the order of its targets.
struct PassScore {
  double log_likelihood = 0;  // sum over its targets, each rounded to float32 (in runs of fp64 to float64)
  bool greedy = false;        // each target is the likeliest token, that of the lowest number among equals
};

struct ScoringOptions {
  int64_t token_budget =
      2048;  // tokens of a microbatch at most, if no row is longer; of live weights what training has
  ScoreJournal* journal = nullptr;     // batches that it knows are not computed
  bool progress = false;               // rank 0 tells
  std::function<void()> each_batch{};  // of this rank, before it is read
  // Asked before each round of as many batches as a step has, on every rank alike: false ends the pass. Empty: true.
  std::function<bool()> go_on{};
};

class TokenScorer {
 public:
  // Weights that `fill` sets, under config.parallel on all ranks of `world`, which outlives it. `identity`: what tells
  // this model's answers in a journal from those of others.
  TokenScorer(const RunConfig& config, std::function<void(ParameterSet&)> fill, std::string identity,
              HostCommunicator& world, const HostShare& share);
  // The weights as they are in `engine`, made from `config`; nothing of its training changes. Rows fit its samples, and
  // share no tokens in them.
  // What that takes of the device is allocated here.
  TokenScorer(const RunConfig& config, Engine& engine, std::string identity, HostCommunicator& world);
  ~TokenScorer();
  // Adds to `planned` what it takes beside an engine, on such a rank.
  static void plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, Ledger& planned);

  // Every rank calls it with the same passes: the same on every rank, in the order of the passes. Nothing at all where
  // options.go_on ended it.
  std::vector<PassScore> score(const ScorePlanner& passes, const ScoringOptions& options = {});
  // Gives back the memory of weights that it loaded; the next score() loads them again.
  void release();
  // Longest row that it takes.
  int64_t longest() const;

 private:
  struct Own;      // engine, stream and memory of a checkpoint's weights
  struct Session;  // one call of score()
  void prepare(const ScorePlanner& passes, const ScoringOptions& options);
  RunConfig config_;
  std::function<void(ParameterSet&)> fill_;
  std::string identity_;
  HostCommunicator& world_;
  HostShare share_;
  std::unique_ptr<Own> own_;
  Engine* engine_ = nullptr;
  int64_t attending_ = 0;  // of its microbatches, as in SampleShape; live weights share nothing
  std::unique_ptr<ProbeHead> head_;
};

}  // namespace shiftron
