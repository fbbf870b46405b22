// Turns a task's request into tokens: what a model reads, and which rows score which targets. The rules are those of
// lm-evaluation-harness for Hugging Face models, so that both give the same numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/sections.h"
#include "core/progress.h"
#include "evaluate/tasks/request.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// How a text becomes tokens.
struct TokenRules {
  std::function<std::vector<int32_t>(std::string_view)> encode;  // adds no token in front
  int32_t prefix = 0;               // the context of requests without one: begin of document, else end of document
  bool begins_with_prefix = false;  // puts `prefix` before texts that do not start with prefix_text
  std::string prefix_text{};        // text that encode() turns into `prefix`; empty: there is none
  int64_t max_length = 0;           // tokens that the model reads at once; the first ones are dropped
  bool boundary_fallback = false;  // continuation that merges into its context: true encodes it alone, false refuses it
};

// Tokens of one pass. Row first + j of the input is asked for targets[j].
struct ScoreTokens {
  std::vector<int32_t> input;
  int64_t first = 0;
  std::vector<int32_t> targets;
  int64_t lost = 0;  // first tokens of the context that were dropped
};

// Tokens to continue.
struct PromptTokens {
  std::vector<int32_t> input;
  int64_t lost = 0;  // first tokens that were dropped
};

// One pass for a log-likelihood, any number for a rolling one. Messages call the request `name`, such as "request 3".
// Throws Error(bad_input) if nothing is left to score or to condition on, or if a continuation is longer than
// max_length.
std::vector<ScoreTokens> score_tokens(const Request& request, const TokenRules& rules, const std::string& name);

// The prompt to continue, cut so that most_tokens more fit. Throws Error(bad_input) if they leave no room for a prompt.
PromptTokens prompt_tokens(const Request& request, const TokenRules& rules, const std::string& name);

// Windows of `length` predictions over a document's tokens. The first one follows `prefix`; each token is predicted
// once.
std::vector<ScoreTokens> rolling_windows(const std::vector<int32_t>& tokens, int32_t prefix, int64_t length);

// encode() of a tokenizer, with a cache of the parts that it encodes independently: lines, or whole texts. The examples
// in front of every question of a task are encoded once if lines are. Not thread-safe.
class LineEncoder {
 public:
  // `progress` advances by each line's bytes; may be null.
  explicit LineEncoder(const Tokenizer& tokenizer, Progress* progress = nullptr)
      : tokenizer_(&tokenizer), progress_(progress) {}
  std::vector<int32_t> operator()(std::string_view text);

 private:
  const Tokenizer* tokenizer_;
  Progress* progress_;
  std::unordered_map<std::string, std::vector<int32_t>> lines_;
  size_t bytes_ = 0;
};

// The rules for a model's own tokenizer. If it puts no token before a document, end-of-document takes that token's
// place, but `beginning` must ask for it.
// `progress` as in LineEncoder; it and the tokenizer must outlive the rules.
TokenRules token_rules(const Tokenizer& tokenizer, BeginningToken beginning, int64_t max_length, bool boundary_fallback,
                       Progress* progress = nullptr);

}  // namespace shiftron
