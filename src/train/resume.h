// Which saved step a start goes on from, and whether its configuration may.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/content.h"
#include "checkpoint/manifest.h"
#include "core/log.h"
#include "train/run_config.h"

namespace shiftron {

// What a start has promised to keep for ever, a later one without checkpoint.keep_every does not remove.
bool was_to_stay(const Manifest& manifest);

// The step that checkpoint.resume=STEP asks for; nothing: the newest. A STEP counts once: where the newest step was
// saved by a run that had gone back to it already, that one is the newest of its line. Reads the newest step that can
// be read, before any tensor is: throws Error(bad_input) listing the changed keys that may not differ. For rank 0.
std::optional<int64_t> step_to_resume(const RunConfig& config, const std::string& checkpoints, Log& log);

// What to do where steps behind `last_good` had no finite loss: the commands that begin a new run.
std::string way_out_of_non_finite(const RunConfig& config, const std::string& checkpoints, int64_t last_good);

// Throws Error(bad_input) where the fingerprints of data.train differ; where its datasets lie does not matter.
void require_same_data(const std::vector<DataSource>& sources, int64_t step, const std::string& before,
                       const std::string& now);

// Behind an imported model's tokens stand its tokenizer's words: throws Error(bad_input) where the data has another one,
// `hash`; warns, on rank 0, where the model brought none.
void require_tokenizer_of(const std::string& imported_from, const std::string& step_directory,
                          const CheckpointContent& content, const std::string& hash, Log& log);

// Warns where train.steps differs and the learning rate follows the end of the run.
void warn_of_new_end(const RunConfig& saved, const RunConfig& config, int64_t first_step, Log& log);

// Warns where the run goes on from train.stop_at or behind it. No refusal: who is told 75 gives the same command again.
void warn_of_passed_stop(const TrainSection& train, int64_t saved_step, Log& log);

}  // namespace shiftron
