// Where a run starts: after a saved step, or with new parameters.
#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "core/stream.h"
#include "run/run_files.h"
#include "run/saved_state.h"
#include "train/run_data.h"
#include "train/run_environment.h"
#include "train/trainer.h"

namespace shiftron {

struct StartPoint {
  int64_t saved_step = -1;        // the step that was loaded; -1: none
  int64_t first_step = 1;         // that is trained
  RowsOfStep rows{};              // rank 0's, of the step before the first one
  std::string library_choices{};  // of the loaded step; "": none
  ModelOrigin origin{};
};

// Loads the step that the run resumes from, or initialises the parameters, and sets aside what was saved and reported
// for later steps. `stream.cpu` gets the loaded step's products. Every rank of the run calls it. Throws
// Error(bad_input) if the configuration or the data do not allow to resume.
StartPoint find_start(const RunConfig& config, const RunEnvironment& environment, RunData& data, Trainer& trainer,
                      Stream& stream);

}  // namespace shiftron
