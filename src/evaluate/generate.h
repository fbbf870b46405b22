// The continuation of a prompt of ids.
#pragma once

#include <functional>
#include <vector>

#include "core/check.h"
#include "evaluate/decoder.h"
#include "evaluate/sampler.h"

namespace shiftron {

// Logits that are not finite. The exit code is bad_input, as for other steps that cannot be used.
class NonFiniteLogits : public Error {
 public:
  explicit NonFiniteLogits(int64_t tokens);  // tokens read so far
};

struct GenerateOptions {
  int64_t tokens = 64;
  SamplingRules sampling{};
  int64_t chunk = 256;  // tokens of the prompt fed at once
  // With shift.reset=always the shift starts over after the end of a document, as in training; else it mixes across.
  bool separates_documents = true;
  std::function<bool(int32_t token)> ends_with{};  // whether to stop after this token
  bool scores = false;                             // whether to compute Continuation::log_probability
};

struct Continuation {
  int64_t prompt = 0, sample = 0;  // numbers from 0
  std::vector<int32_t> ids{};      // without the end-of-document token
  bool ended = false;              // by that token; otherwise by the options
  double log_probability = 0;      // Σ ln p of `ids`, each by the softmax of all logits of the model
};

// Continues `prompt` (not empty) in a decoder that was fed nothing: ids below `vocab`, at most options.tokens, stopping
// before `end`. The draws are those of sample `sample` of prompt `number`. `show` gets each token when it is generated.
// Throws NonFiniteLogits on every rank.
Continuation continue_tokens(Decoder& decoder, const std::vector<int32_t>& prompt, const GenerateOptions& options,
                             int64_t vocab, int32_t end, const std::function<void(int32_t)>& show = {},
                             int64_t number = 0, int64_t sample = 0);

// For a `decode` that all ranks call and that throws NonFiniteLogits on all of them: only rank 0 reports it. Every
// other error is a rank's own.
void report_non_finite_once(const ControlPlane& world, const std::function<void()>& decode);

// What to feed so that `ids` begin a document as in training: `ids`, after the token `beginning` unless they have it. If
// there is none (-1), after the end-of-document token `end` if data.document_reset is off or `ids` is empty.
std::vector<int32_t> with_document_start(std::vector<int32_t> ids, const RunConfig& config, int32_t end,
                                         int32_t beginning = -1);

}  // namespace shiftron
