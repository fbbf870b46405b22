// TokenScorer computes log-probabilities of given tokens by a model in any layout: forward only, through the pipeline
// of training.
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

// Of one pass, in the order of its targets.
struct PassScore {
  double log_likelihood = 0;  // sum over its targets, each rounded to float32 (in runs of fp64 to float64)
  bool greedy = false;        // each target is the likeliest token, the first of equally likely ones
};

struct ScoringOptions {
  int64_t token_budget =
      2048;  // tokens of a microbatch at most, unless a row is longer; live weights use training's microbatch
  ScoreJournal* journal = nullptr;     // batches that are in it are not computed
  bool progress = false;               // rank 0 shows it
  std::function<void()> each_batch{};  // called before each batch of this rank is read
  // Called before each round of as many batches as a training step has, in step on all ranks; false ends the pass.
  // Empty: always true.
  std::function<bool()> keep_going{};
};

class TokenScorer {
 public:
  // Weights set by `fill`, in the layout config.parallel on all ranks of `world`, which must outlive it. `identity`
  // distinguishes this model's answers in a journal from those of others.
  TokenScorer(const RunConfig& config, std::function<void(ParameterSet&)> fill, std::string identity,
              HostCommunicator& world, const HostShare& share);
  // Uses the weights in `engine`, which was built from `config`. Training is not changed. Rows must fit its samples and
  // share no tokens. Allocates the device memory that it needs.
  TokenScorer(const RunConfig& config, Engine& engine, std::string identity, HostCommunicator& world);
  ~TokenScorer();
  // Adds to `planned` the memory that it needs in addition to an engine, on such a rank.
  static void plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, Ledger& planned);

  // Every rank calls it with the same passes and gets the same scores, in the order of the passes; empty if
  // options.keep_going ended the pass.
  std::vector<PassScore> score(const ScorePlanner& passes, const ScoringOptions& options = {});
  // Frees the weights that it loaded; the next score() loads them again.
  void release();
  // The longest row that it accepts.
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
  int64_t attending_ = 0;  // of its microbatches, as in SampleShape; 0 for live weights
  std::unique_ptr<ProbeHead> head_;
};

}  // namespace shiftron
