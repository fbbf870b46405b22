// Scorer: what tasks ask of a model, answered by a checkpoint or by live weights on all ranks of a layout.
#pragma once

#include <functional>
#include <memory>
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
  // What messages call a request, asked on rank 0; empty: "request 3".
  std::function<std::string(size_t number)> name_of{};
};

class Scorer {
 public:
  // A checkpoint's parameters under model.config.parallel; `world` outlives it. Requests to generate decode on tp ranks
  // each, whatever pp is: every stage holds the model then.
  Scorer(const CheckpointModel& model, HostCommunicator& world, const HostShare& share);
  // The weights as they are in `engine`, made from `config`, which outlives it: nothing of its training changes.
  // `identity`: of these weights, for journals.
  Scorer(const RunConfig& config, Engine& engine, const std::string& tokenizer_model, std::string identity,
         HostCommunicator& world, const HostShare& share);

  // Every rank calls it with the same requests and options, and gets the same answers, in their order. Throws
  // Error(bad_input) on every rank, told by rank 0, where a request cannot be answered: it is named by its number.
  std::vector<Answer> answer(const std::vector<Request>& requests, const ScorerOptions& options = {});

 private:
  struct Prompt {
    size_t request;
    std::vector<int32_t> tokens;
  };
  void generate(const std::vector<Request>& requests, const std::vector<Prompt>& prompts, const ScorerOptions& options,
                ScoreJournal* journal, std::vector<Answer>& answers);
  std::string continued(Decoder& decoder, const Prompt& prompt, const GenerationRules& rules) const;
  std::string key_of(const Prompt& prompt, const GenerationRules& rules) const;
  RunConfig config_;
  Tokenizer tokenizer_;
  std::string identity_;
  HostCommunicator& world_;
  HostShare share_;
  std::function<void(ParameterSet&)> fill_;  // of a decoder
  bool live_;
  TokenScorer scorer_;
};

}  // namespace shiftron
