// A run made of a model that another run or another program trained: step 0, parameters alone, and the configuration of
// the model.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/step_writer.h"
#include "core/log.h"
#include "train/run_config.h"
#include "train/saved_state.h"

namespace shiftron {

struct ForeignModel {
  std::string from;  // where it comes from: stands in messages and in the step's state
  ModelConfig model;
  // That it is evaluated with unless that is said otherwise.
  int64_t sequence_length = 0;
  Precision precision = Precision::fp32;
  bool document_reset = RunConfig{}.data.document_reset;
  std::string tokenizer_model;    // bytes; empty = none
  std::string without_tokenizer;  // then: why, and what to do
  ModelOrigin origin;
};

struct ImportedRun {
  WrittenStep step;
  std::string config_file;
  bool was_there = false;  // the same import had made it, and was killed
  std::string warning{};   // that activations of such weights may overflow; "": none, or it was there
};

struct ImportOptions {
  std::string request;  // a line that differs where other files or options do; empty: every import is another
  StepWriteOptions write{};
  std::function<void(const ImportedRun& made)> tell{};  // before the last trace of the command goes
};

// Writes the source's parameters as OUTPUT/checkpoints/step-00000000, and OUTPUT/config.conf, with [model] and [shift];
// `train` resumes from there with moments of zero. An import that fails or is killed leaves no step and may be
// repeated, and so may one that was killed after its step got its name. Errors: the model or the output
// (bad_input); the disk (crash).
ImportedRun import_run(TensorSource& source, const ForeignModel& foreign, const std::string& output,
                       const std::string& code_version, Log& log, ImportOptions options = {});

}  // namespace shiftron
