// Scorer: what tasks ask of a model, answered by a checkpoint or by live weights on all ranks of a layout.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/host.h"
#include "data/tokenizer.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/generate.h"
#include "evaluate/score_tokens.h"
#include "evaluate/tasks/request.h"
#include "evaluate/token_scorer.h"

namespace shiftron {

struct ScorerOptions {
  int64_t max_length = 0;       // tokens that the model reads at once; 0: as in training
  int64_t token_budget = 2048;  // of a microbatch
  BeginningToken beginning = BeginningToken::tokenizer;
  bool boundary_fallback = false;      // see TokenRules
  std::string journal{};               // directory of answers that a killed evaluation left; "": none
  bool progress = false;               // rank 0 tells
  std::function<void()> each_batch{};  // before a microbatch of this rank, or one of its prompts
  // Asked now and then, on every rank alike: false ends the pass. Empty: true.
  std::function<bool()> go_on{};
  // What messages call a request, asked on rank 0; empty: "request 3".
  std::function<std::string(size_t number)> name_of{};
};

// Tokens that a model of that configuration reads at once.
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
  std::vector<size_t> shortened{};  // requests whose first tokens fell off
};
// Throws Error(bad_input) where a request cannot be answered: it is named as options.name_of does. `max_length`: tokens
// that the model reads at once. Where options.progress is set, this rank tells.
RequestTokens tokens_of(const std::vector<Request>& requests, const Tokenizer& tokenizer, const ScorerOptions& options,
                        int64_t max_length);

class Scorer {
 public:
  // A checkpoint's parameters under model.config.parallel; `world` outlives it. Requests to generate decode on tp ranks
  // each, whatever pp is: every stage holds the model then.
  Scorer(const CheckpointModel& model, HostCommunicator& world, const HostShare& share);
  // The weights as they are in `engine`, made from `config`, which outlives it: nothing of its training changes.
  // `identity`: of these weights, for journals. What scoring takes of the device is allocated here.
  Scorer(const RunConfig& config, Engine& engine, const std::string& tokenizer_model, std::string identity,
         HostCommunicator& world, const HostShare& share);

  // Adds to `planned` what that takes beside an engine, on such a rank; `generates`: with make_decoder().
  static void plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, bool generates,
                        Ledger& planned);
  // Of live weights: allocates what generation takes of the device, which answer() does where it was not called.
  void make_decoder();

  // Every rank calls it with the same requests and options, and gets the same answers, in their order; none where
  // options.go_on ended it. Throws Error(bad_input) on every rank, told by rank 0, where a request cannot be answered.
  std::vector<Answer> answer(const std::vector<Request>& requests, const ScorerOptions& options = {});
  // What it reads of them; thrown as there.
  RequestTokens tokens(const std::vector<Request>& requests, const ScorerOptions& options = {});
  // The same answers, of requests whose tokens are known.
  std::vector<Answer> answer(const std::vector<Request>& requests, const RequestTokens& tokens,
                             const ScorerOptions& options = {});

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::string& identity() const { return identity_; }  // of the weights

 private:
  using Prompt = RequestTokens::Prompt;
  struct Generation {
    const Prompt* prompt;
    const GenerationRules* rules;
    std::string key;  // in the journal, if there is one
    int64_t length() const { return static_cast<int64_t>(prompt->tokens.size()) + rules->most_tokens; }
  };
  std::vector<Generation> not_in_journal(const std::vector<Request>& requests, const std::vector<Prompt>& prompts,
                                         const ScoreJournal* journal, std::vector<Answer>& answers) const;
  bool generate(const std::vector<Request>& requests, const std::vector<Prompt>& prompts, const ScorerOptions& options,
                ScoreJournal* journal, std::vector<Answer>& answers);
  // Unset where logits are not finite.
  std::optional<std::string> continued(Decoder& decoder, const Prompt& prompt, const GenerationRules& rules) const;
  std::string key_of(const Prompt& prompt, const GenerationRules& rules) const;
  RunConfig config_;
  Tokenizer tokenizer_;
  std::string identity_;
  HostCommunicator& world_;
  HostShare share_;
  std::function<void(ParameterSet&)> fill_;  // of a checkpoint's decoder
  Engine* live_ = nullptr;
  TokenScorer scorer_;
  std::unique_ptr<HostCommunicator> stages_;  // of live weights that stages divide
  std::unique_ptr<Decoder> live_decoder_;
};

}  // namespace shiftron
