// What a task asks of a model, and what the model answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftron {

enum class RequestKind { log_likelihood, rolling, generate };

// Greedy, until one of the strings appears or so many tokens were made.
struct GenerationRules {
  std::vector<std::string> until{};
  int64_t most_tokens = 256;
  bool states_most_tokens = false;  // asked for by the user or the task: reports then show it among what was asked
};

struct Request {
  RequestKind kind = RequestKind::log_likelihood;
  std::string context{}, continuation{};  // rolling: the text is the context
  GenerationRules generation{};
};

struct Answer {
  double log_likelihood = 0;  // sum of natural logarithms, each of float32; of a text 0, or NaN where logits were
  bool greedy = false;        // each token of the continuation is the most likely one
  std::string text{};         // generated
};

}  // namespace shiftron
