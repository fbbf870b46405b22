// Scorer answers the requests of tasks, from a checkpoint or from live weights, on all ranks of a layout.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/generate.h"
#include "evaluate/score_tokens.h"
#include "evaluate/tasks/request.h"
#include "evaluate/token_scorer.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

struct ScorerOptions {
  int64_t max_length = 0;       // tokens that the model reads at once; 0: as in training
  int64_t token_budget = 2048;  // of a microbatch
  BeginningToken beginning = BeginningToken::tokenizer;
  bool boundary_fallback = false;      // see TokenRules
  std::string journal{};               // directory of the ScoreJournal; "": none
  bool progress = false;               // rank 0 shows it
  std::function<void()> each_batch{};  // called before each microbatch or prompt of this rank
  // Called now and then, in step on all ranks; false ends the pass. Empty: always true.
  std::function<bool()> keep_going{};
  // How messages name a request, called on rank 0; empty: "request 3".
  std::function<std::string(size_t number)> name_of{};
};

// Tokens that a model with that configuration reads at once.
inline int64_t max_length_of(const ScorerOptions& options, const RunConfig& config) {
  return options.max_length > 0 ? options.max_length : config.train.sequence_length;
}

// Requests as a model reads them.
struct RequestTokens {
  struct Prompt {
    size_t request;
    std::vector<int32_t> tokens;
  };
  ScorePlanner planner;
  std::vector<size_t> request_of_pass{};
  std::vector<Prompt> prompts{};
  std::vector<size_t> shortened{};  // requests whose first tokens were dropped
};
// Throws Error(bad_input) if a request cannot be answered; the message names it by options.name_of. `max_length`:
// tokens that the model reads at once. If options.progress is set, this rank shows progress.
RequestTokens tokens_of(const std::vector<Request>& requests, const Tokenizer& tokenizer, const ScorerOptions& options,
                        int64_t max_length);

class Scorer {
 public:
  // A checkpoint's parameters in the layout model.config.parallel; `world` must outlive it. Each generation request
  // decodes on tp ranks, whatever pp is: every stage then holds the whole model.
  Scorer(const CheckpointModel& model, HostCommunicator& world, const HostShare& share);
  // Uses the weights in `engine`, which was built from `config` and must outlive it. Training is not changed.
  // `identity`: of these weights, for journals. Allocates the device memory for scoring.
  Scorer(const RunConfig& config, Engine& engine, const StoredTokenizer& tokenizer, std::string identity,
         HostCommunicator& world, const HostShare& share);

  // Adds to `planned` the memory that this needs in addition to an engine, on such a rank; `generates`: including
  // make_decoder().
  static void plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, bool generates,
                        Ledger& planned);
  // For live weights: allocates the device memory for generation. answer() does it if this was not called before.
  void make_decoder();

  // Every rank calls it with the same requests and options and gets the same answers, in the order of the requests;
  // none if options.keep_going ended the pass. Throws Error(bad_input) on every rank if a request cannot be answered;
  // rank 0 reports it.
  std::vector<Answer> answer(const std::vector<Request>& requests, const ScorerOptions& options = {});
  // The tokens that answer() reads for these requests; throws as answer() does.
  RequestTokens tokens(const std::vector<Request>& requests, const ScorerOptions& options = {});
  // As above, for requests whose tokens are known.
  std::vector<Answer> answer(const std::vector<Request>& requests, const RequestTokens& tokens,
                             const ScorerOptions& options = {});

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& identity() const { return identity_; }  // of the weights

 private:
  using Prompt = RequestTokens::Prompt;
  struct Generation {
    const Prompt* prompt;
    const GenerationRules* rules;
    std::string key;  // in the journal; empty without one
    int64_t length() const { return static_cast<int64_t>(prompt->tokens.size()) + rules->most_tokens; }
  };
  std::vector<Generation> not_in_journal(const std::vector<Request>& requests, const std::vector<Prompt>& prompts,
                                         const ScoreJournal* journal, std::vector<Answer>& answers) const;
  bool generate(const std::vector<Request>& requests, const std::vector<Prompt>& prompts, const ScorerOptions& options,
                ScoreJournal* journal, std::vector<Answer>& answers);
  // Unset if logits are not finite.
  std::optional<std::string> continued(Decoder& decoder, const Prompt& prompt, const GenerationRules& rules) const;
  std::string key_of(const Prompt& prompt, const GenerationRules& rules) const;
  RunConfig config_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::string identity_;
  HostCommunicator& world_;
  HostShare share_;
  std::function<void(ParameterSet&)> fill_;  // for a checkpoint's decoder
  Engine* live_ = nullptr;
  TokenScorer scorer_;
  std::unique_ptr<HostCommunicator> stages_;  // for live weights on several stages
  std::unique_ptr<Decoder> live_decoder_;
};

}  // namespace shiftron
