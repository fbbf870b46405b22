// Which saved step a start resumes from, and whether its configuration allows that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/content.h"
#include "checkpoint/manifest.h"
#include "config/run_config.h"
#include "core/log.h"
#include "data/loader.h"

namespace shiftron {

// Whether the start that saved the step promised to keep it for ever. A later start without checkpoint.keep_every does
// not remove it.
bool promised_to_keep(const Manifest& manifest);

// The step that checkpoint.resume=STEP asks for; unset: the newest. STEP takes effect once: if the newest step was
// saved by a run that had already gone back to STEP, that newest step is used. Before any tensor is read, compares the
// configuration with that of the newest readable step: throws Error(bad_input) that lists the changed keys that may not
// differ. For rank 0.
std::optional<int64_t> step_to_resume(const RunConfig& config, const std::string& checkpoints, Log& log);

// What to do if steps after `last_good` had no finite loss: the commands that begin a new run.
std::string non_finite_advice(const RunConfig& config, const std::string& checkpoints, int64_t last_good);

// Throws Error(bad_input) if the fingerprints of data.train differ; the datasets' paths do not matter.
void require_same_data(const std::vector<DataSource>& sources, int64_t step, const std::string& before,
                       const std::string& now);

// The token numbers of an imported model belong to its tokenizer: throws Error(bad_input) if the data has another one.
// Warns, on rank 0, if the model came without one, or if the data was built with other choices about it.
void require_tokenizer_of(const std::string& imported_from, const std::string& step_directory,
                          const CheckpointContent& content, const Loader& data, Log& log);

// Warns if train.steps differs and the learning rate depends on the end of the run.
void warn_of_changed_schedule(const RunConfig& saved, const RunConfig& config, int64_t first_step, Log& log);

// Warns if the run resumes at or after train.stop_at. It does not refuse: after exit code 75 the same command is given
// again.
void warn_of_passed_stop(const TrainSection& train, int64_t saved_step, Log& log);

}  // namespace shiftron
