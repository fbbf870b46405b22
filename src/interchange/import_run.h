// Makes a run from a model that another run or another program trained: step 0 with parameters only, and the model's
// configuration.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/step_writer.h"
#include "config/run_config.h"
#include "core/log.h"
#include "run/saved_state.h"

namespace shiftron {

struct ForeignModel {
  std::string from;  // where it comes from, for messages and the step's state
  ModelConfig model;
  // Defaults for its evaluation.
  int64_t sequence_length = 0;
  Precision precision = Precision::fp32;
  bool document_reset = RunConfig{}.data.document_reset;
  StoredTokenizer tokenizer;
  std::string without_tokenizer;  // why there is none, and what to do
  ModelOrigin origin;
};

struct ImportedRun {
  WrittenStep step;
  std::string config_file;
  bool was_there = false;  // an earlier, killed command of the same import had made it
  std::string warning{};   // that activations of such weights may overflow; "": they may not, or was_there
};

struct ImportOptions {
  std::string request;  // a line that differs for other files or options; empty: every import is different
  StepWriteOptions write{};
  std::function<void(const ImportedRun& made)> notify{};  // called before the command removes its last file
};

// Writes the source's parameters as OUTPUT/checkpoints/step-00000000, and OUTPUT/config.conf with [model] and [shift];
// `train` resumes from there with zero moments. An import that fails or is killed leaves no step and can be repeated,
// also if it was killed after its step got its name. Errors: the model or the output (bad_input); the disk (crash).
ImportedRun import_run(TensorSource& source, const ForeignModel& foreign, const std::string& output,
                       const std::string& code_version, Log& log, ImportOptions options = {});

}  // namespace shiftron
