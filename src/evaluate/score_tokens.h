// From a task's request to tokens: what a model reads, and which of its rows score what. The rules are those of
// lm-evaluation-harness's models of Hugging Face, so that both give one number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/progress.h"
#include "data/tokenizer.h"
#include "evaluate/tasks/request.h"
#include "train/sections.h"

namespace shiftron {

// How a text becomes tokens.
struct TokenRules {
  std::function<std::vector<int32_t>(std::string_view)> encode;  // nothing put in front
  int32_t prefix = 0;               // the context of what has none: beginning of documents, else their end
  bool begins_with_prefix = false;  // texts do, unless prefix_text begins them already
  std::string prefix_text{};        // as encode() reads it; empty: no text gives that token
  int64_t max_length = 0;           // tokens that the model reads at once; the first ones fall off
  bool boundary_fallback = false;   // a continuation that merges into its context is encoded alone: else it is refused
};

// Tokens of one pass: input row first + j is asked for targets[j].
struct ScoreTokens {
  std::vector<int32_t> input;
  int64_t first = 0;
  std::vector<int32_t> targets;
  int64_t lost = 0;  // first tokens of the context that fell off
};

// Tokens that are continued.
struct PromptTokens {
  std::vector<int32_t> input;
  int64_t lost = 0;  // first tokens that fell off
};

// One pass for a log-likelihood, any number for a rolling one. `name` stands in messages: "request 3". Throws
// Error(bad_input) where nothing is left to score or to condition on, or a continuation is longer than max_length.
std::vector<ScoreTokens> score_tokens(const Request& request, const TokenRules& rules, const std::string& name);

// What is continued; room for all of most_tokens is left. Throws Error(bad_input) where there is none.
PromptTokens prompt_tokens(const Request& request, const TokenRules& rules, const std::string& name);

// Windows of `length` predictions over a document's tokens: the first behind `prefix`, each token predicted once.
std::vector<ScoreTokens> rolling_windows(const std::vector<int32_t>& tokens, int32_t prefix, int64_t length);

// encode() of a tokenizer whose lines do not touch, with a memory: the examples in front of every question of a task
// are encoded once. Not for several threads.
class LineEncoder {
 public:
  // `progress` is told of each line's bytes; null: nobody.
  explicit LineEncoder(const Tokenizer& tokenizer, Progress* progress = nullptr)
      : tokenizer_(&tokenizer), progress_(progress) {}
  std::vector<int32_t> operator()(std::string_view text);

 private:
  const Tokenizer* tokenizer_;
  Progress* progress_;
  std::unordered_map<std::string, std::vector<int32_t>> lines_;
  size_t bytes_ = 0;
};

// The rules of a model's own tokenizer, which has no token that begins documents: their end stands in front of them.
// `progress` as of LineEncoder; both outlive the rules.
TokenRules token_rules(const Tokenizer& tokenizer, BeginningToken beginning, int64_t max_length, bool boundary_fallback,
                       Progress* progress = nullptr);

}  // namespace shiftron
