// A checkpoint's model for evaluation and generation: its configuration, its tokenizer, its parameters under any layout.
#pragma once

#include <string>

#include "checkpoint/content.h"
#include "data/tokenizer.h"
#include "train/run_config.h"

namespace shiftron {

// Behind a message about a number that is not finite.
inline constexpr const char* kWhyNotFinite =
    "a weight is not finite, or train.precision is too narrow; shiftron checkpoint export names such a weight";

struct CheckpointModel {
  std::string directory;        // of the step
  std::string manifest_hash{};  // of what open_checkpoint() read; "": a model of another origin
  CheckpointContent content;
  RunConfig config;       // as it was trained, resolved
};

// Throws Error(no_checkpoint) where the step is damaged, Error(bad_input) where `directory` is no step (a run's
// directory: its newest step is named in the message).
CheckpointModel open_checkpoint(const std::string& directory);

// Why a tokenizer cannot be that of a model of so many tokens: it has more; "" where it can. `name` stands in it.
std::string vocab_fault(const Tokenizer& tokenizer, int64_t vocab, const std::string& name);

// `model_bytes`: of a tokenizer for a model of so many tokens; `name` stands in messages. Throws Error(bad_input) where it
// has more than these.
Tokenizer tokenizer_within(int64_t vocab, const std::string& model_bytes, const std::string& name);

// Throws Error(bad_input) where the step has none, or one of more tokens than the model.
Tokenizer tokenizer_of(const CheckpointModel& model);

}  // namespace shiftron
