// What a benchmark asks of a model, and what comes back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftron {

enum class RequestKind {
  log_likelihood,  // of `continuation` behind `context`
  rolling,         // of `context`, all of it
  generate,        // the greedy text behind `context`
};

struct GenerationRules {
  std::vector<std::string> until;  // the text ends before the first of these; the end-of-text token ends it too
  int64_t most_tokens = 256;
};

struct Request {
  RequestKind kind = RequestKind::log_likelihood;
  std::string context;
  std::string continuation;
  GenerationRules generation{};
};

struct Answer {
  double log_likelihood = 0;  // natural logarithm, summed over tokens
  bool greedy = false;        // every token of the continuation was the likeliest
  std::string text{};         // generated
};

}  // namespace shiftron
