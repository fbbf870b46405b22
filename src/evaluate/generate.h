// Text from a prompt.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/check.h"
#include "evaluate/decoder.h"

namespace shiftron {

// Logits that are not finite. The exit code is bad_input, as for other steps that cannot be used.
class NonFiniteLogits : public Error {
 public:
  explicit NonFiniteLogits(int64_t tokens);  // tokens read so far
};

struct GenerateOptions {
  int64_t tokens = 64;
  double temperature = 0;  // 0 = greedy
  uint64_t seed = 0;
  int64_t chunk = 256;     // tokens of the prompt fed at once
  // With shift.reset=always the shift starts over after the end of a document, as in training; else it mixes across.
  bool parts_documents = true;
  std::function<bool(int32_t token)> ends_with{};  // whether to stop after this token
};

// Continues `prompt` (not empty) in a decoder that was fed nothing: ids below `vocab`, at most options.tokens, stopping
// before `end`. `show` gets each token when it is generated. Throws NonFiniteLogits on every rank.
std::vector<int32_t> continue_tokens(Decoder& decoder, const std::vector<int32_t>& prompt,
                                     const GenerateOptions& options, int64_t vocab, int32_t end,
                                     const std::function<void(int32_t)>& show);

// For a `decode` that all ranks call and that throws NonFiniteLogits on all of them: only rank 0 reports it. Every other
// error is a rank's own.
void report_non_finite_once(const ControlPlane& world, const std::function<void()>& decode);

// What to feed so that `ids` begin a document as in training: `ids`, after the end-of-document token `end` if
// data.document_reset is off or `ids` is empty.
std::vector<int32_t> as_beginning_of_document(std::vector<int32_t> ids, const RunConfig& config, int32_t end);

// The prompt's continuation, up to an end-of-document token. `show` gets each piece of text when it is generated.
// Throws NonFiniteLogits.
std::vector<int32_t> generate(const CheckpointModel& model, const std::string& prompt, const GenerateOptions& options,
                              HostCommunicator& world, const HostShare& share,
                              const std::function<void(const std::string&)>& show);

}  // namespace shiftron
