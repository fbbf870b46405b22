// What a checkpoint holds of a run in addition to tensors and files; defined only here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/stream.h"

namespace shiftron {

// Counters of the optimizer.
struct TrainerState {
  int64_t applied_updates = 0, skipped_updates = 0, skipped_in_row = 0;
  bool operator==(const TrainerState&) const = default;
};

// What an import knows about a model and training does not change.
struct ModelOrigin {
  std::string from;                    // where its first weights come from; "": training here made them
  int64_t positions = 0;               // number of tokens of a text that it was made for; 0: not known
  std::vector<int64_t> end_tokens;     // each ends a text
  std::optional<int64_t> begin_token;  // precedes a text
  bool operator==(const ModelOrigin&) const = default;
};

struct SavedState {
  RunConfig configuration;  // resolved
  TrainerState trainer;
  int64_t consumed_samples = 0;
  std::string validation_fingerprint;  // "": no validation data so far
  // What was chosen by timing; kept because results depend on it. Unset: chosen at the next start.
  std::optional<Bfloat16Products> bfloat16;
  std::string library_choices;  // see train/library_choices.h
  // Where the parameters come from if they were imported; then the configuration covers only the model, and moments are
  // zero.
  std::string imported_from;
  std::string without_tokenizer;           // why no tokenizer was imported, and what to do
  std::optional<int32_t> end_of_document;  // of the data; unset: an import, or saved by an older version
  ModelOrigin origin;                      // that of the run's step 0, kept in all its steps
};

// A JSON object, for CheckpointContent::state_json.
std::string to_json(const SavedState& state);
// The inverse; throws Error(no_checkpoint) with a message that begins with `source`.
SavedState saved_state(const std::string& json, const std::string& source);

// Only the configuration.
RunConfig saved_config(const std::string& json, const std::string& source);

}  // namespace shiftron
