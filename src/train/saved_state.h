// What a checkpoint holds of a run beside tensors and files, stated once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"
#include "train/run_config.h"

namespace shiftron {

// Counters of the optimizer.
struct TrainerState {
  int64_t applied_updates = 0, skipped_updates = 0, skipped_in_row = 0;
  bool operator==(const TrainerState&) const = default;
};

// What an import says of a model and no training changes.
struct ModelOrigin {
  std::string from;                    // where its first weights come from; "": training here made them
  int64_t positions = 0;               // tokens of a text that it was made for; 0: not known
  std::vector<int64_t> end_tokens;     // each ends a text
  std::optional<int64_t> begin_token;  // stands in front of a text
  bool operator==(const ModelOrigin&) const = default;
};

struct SavedState {
  RunConfig configuration;  // resolved
  TrainerState trainer;
  int64_t consumed_samples = 0;
  std::string validation_fingerprint;  // "": no validation data so far
  // What was chosen by timing, since bits depend on it; nothing: chosen at the next start.
  std::optional<Bfloat16Products> bfloat16;
  std::string library_choices;  // see train/library_choices.h
  // Where the parameters come from if no run of ours made them; then the configuration speaks of the model alone, and
  // moments are zero.
  std::string imported_from;
  std::string without_tokenizer;  // why none came along from there, and what to do
  ModelOrigin origin;             // of the run's step 0, in all its steps
};

// A JSON object, for CheckpointContent::state_json.
std::string to_json(const SavedState& state);
// Back; throws Error(no_checkpoint) that begins with `source`.
SavedState saved_state(const std::string& json, const std::string& source);

// Its configuration alone.
RunConfig saved_config(const std::string& json, const std::string& source);

}  // namespace shiftron
