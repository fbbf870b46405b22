// What a task asks of a model, and what the model answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftron {

enum class RequestKind { log_likelihood, rolling, generate };

// Greedy decoding until one of the strings appears or most_tokens tokens were generated.
struct GenerationRules {
  std::vector<std::string> until{};
  int64_t most_tokens = 256;
  bool states_most_tokens = false;  // set by the user or the task: reports then list it with the request
};

struct Request {
  RequestKind kind = RequestKind::log_likelihood;
  std::string context{}, continuation{};  // rolling: the text is the context
  GenerationRules generation{};
};

struct Answer {
  double log_likelihood = 0;  // sum of natural logarithms in float32; 0 for a generated text, NaN if its logits were
  bool greedy = false;        // each token of the continuation is the likeliest
  std::string text{};         // generated
};

}  // namespace shiftron
