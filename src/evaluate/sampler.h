// Which token comes next: the most likely one, or one that is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/philox.h"

namespace shiftron {

struct SamplingRules {
  double temperature = 0;  // 0 = greedy: top_k and top_p then change nothing
  int64_t top_k = 0;       // draws among the k most likely tokens; 0 = among all
  double top_p = 1;        // of these, among the fewest most likely ones whose probabilities sum to p
  uint64_t seed = 0;
};

// A weight per token in proportion to its probability, 0 for tokens that are never drawn. As in Hugging Face
// transformers: logits / temperature, then top-k, then the softmax of what is left, then top-p. Of equal logits the
// lowest id ranks first, so exactly k tokens stay (transformers keeps every token that ties with the last one). Logits
// are finite, temperature and top_p > 0.
std::vector<double> sampling_weights(std::span<const double> logits, const SamplingRules& rules);

// The token at `draw`, in (0, 1), of the cumulative weights in the order of ids. Greedy: the largest logit, of equal
// ones the lowest id.
int32_t choose_token(std::span<const double> logits, const SamplingRules& rules, double draw);

// ln p(token) by the softmax of all logits, without temperature, top-k and top-p.
double log_probability_of(std::span<const double> logits, int32_t token);

// The draws of one continuation, draw i for its token i: the Philox stream of `seed` with the name "generate" for
// sample 0 of prompt 0, otherwise "generate PROMPT SAMPLE".
Philox draws_of(uint64_t seed, int64_t prompt, int64_t sample);

}  // namespace shiftron
