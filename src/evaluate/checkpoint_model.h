// A checkpoint's model for evaluation and generation: its configuration, its tokenizer, its parameters in any layout.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/content.h"
#include "config/run_config.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// Ends a message about a number that is not finite.
inline constexpr const char* kNonFiniteAdvice =
    "a weight is not finite, or train.precision is too low; `shiftron checkpoint export` names such a weight";

struct CheckpointModel {
  std::string directory;        // of the step
  std::string manifest_hash{};  // of the manifest that open_checkpoint() read; "": not from a checkpoint
  CheckpointContent content;
  RunConfig config;  // as trained, resolved
};

// Throws Error(no_checkpoint) if the step is damaged, Error(bad_input) if `directory` is not a step (if it is a run's
// directory, the message names its newest step).
CheckpointModel open_checkpoint(const std::string& directory);

// Why the tokenizer does not fit a model with `vocab` tokens (it has more); "" if it fits. The text calls it `name`.
std::string vocab_fault(const Tokenizer& tokenizer, int64_t vocab, const std::string& name);

// Throws Error(bad_input) if vocab_fault() has one.
void require_vocab(const Tokenizer& tokenizer, int64_t vocab, const std::string& name);
// The tokenizer, which messages call `name`. Throws Error(bad_input) if it has more than `vocab` tokens.
std::unique_ptr<const Tokenizer> tokenizer_for_vocab(int64_t vocab, const StoredTokenizer& stored,
                                                     const std::string& name);
// The path of the checkpoint's tokenizer, for messages.
std::string tokenizer_path(const CheckpointModel& model);

// Nothing without a tokenizer, and for one of another program that this one cannot use: the model still has its ids.
std::unique_ptr<const Tokenizer> usable_tokenizer(const StoredTokenizer& stored, const std::string& name);
// Throws Error(bad_input) if the step has no tokenizer, or one with more tokens than the model.
std::unique_ptr<const Tokenizer> tokenizer_of(const CheckpointModel& model);

}  // namespace shiftron
