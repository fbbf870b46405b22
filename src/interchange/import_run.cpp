// The saved state says that the step was not trained here, so resuming compares only the model's own keys.
#include "interchange/import_run.h"

#include <algorithm>

#include "checkpoint/steps.h"
#include "config/config_text.h"
#include "config/faults.h"
#include "config/validate.h"
#include "core/check.h"
#include "run/new_run.h"
#include "run/overflow.h"

namespace shiftron {
namespace {

// [model] and [shift], as text of a configuration file.
std::string model_sections(const RunConfig& config) {
  const std::string text = to_config_text(config);
  return text.substr(0, text.find("\n[train]"));
}

}  // namespace

ImportedRun import_run(TensorSource& source, const ForeignModel& foreign, const std::string& output,
                       const std::string& code_version, Log& log, ImportOptions options) {
  RunConfig config;
  config.model = foreign.model;
  config.train.micro_batch = config.train.global_batch = 1;
  config.train.precision = foreign.precision;
  config.train.sequence_length = foreign.sequence_length;
  config.data.document_reset = foreign.document_reset;
  refuse_faults(find_faults(config, 1, Use::evaluate), foreign.from);
  SavedState state;
  state.configuration = config;
  state.imported_from = foreign.from;
  state.without_tokenizer = foreign.without_tokenizer;
  state.origin = foreign.origin;
  std::vector<ManifestTensor> parameters = source.tensors();
  std::erase_if(parameters, [](const ManifestTensor& tensor) { return tensor.group != TensorGroup::parameters; });
  const StepToWrite step{.content = {.step = 0,
                                     .configuration = to_config_text(config),
                                     .state_json = to_json(state),
                                     .tokenizer = foreign.tokenizer,
                                     .data_fingerprint = {},
                                     .code_version = code_version},
                         .files = one_file(parameters)};
  NewRun run(output, options.request, log);
  ImportedRun made{.step = {.directory = run.existing_step(), .bytes = 0}, .config_file = run.config_file()};
  if (!options.request.empty() && !run.existing_step().empty()) {
    made.was_there = true;
    made.step.bytes = bytes_of_step(made.step.directory);
    if (options.notify) options.notify(made);
    run.done();
    return made;
  }
  run.begin();
  run.require_config(model_sections(config));
  StepWriteOptions& write = options.write;
  write.only_finite = true;
  WeightSizes sizes;
  write.each_rows = [&](const ManifestTensor& tensor, const void* values, int64_t rows) {
    sizes.add(tensor, values, rows);
  };
  write.before_commit = [&, before = write.before_commit] {
    run.write_config(model_sections(config));
    if (before) before();
  };
  made.step = write_step(source, step, run.checkpoints(), write);
  if (foreign.precision != Precision::fp64) {
    made.warning = overflow_warning(sizes.longest_activation(foreign.model),
                                    "check the weights in " + foreign.from + ", or train with --train.precision fp64");
  }
  if (options.notify) options.notify(made);
  run.done();
  return made;
}

}  // namespace shiftron
