// `shiftron checkpoint export`, a function for each format.
#pragma once

#include "cli/command_line.h"
#include "evaluate/checkpoint_model.h"

namespace shiftron::cli {

// Write the model as --output, check it and report the result. A tokenizer that the format cannot represent is left
// out, with a note. Throw Error(crash) if the files do not compute what the model does; then nothing is kept.
int export_hugging_face(const CommandLine& line, const CheckpointModel& model);
int export_gguf(const CommandLine& line, const CheckpointModel& model);

}  // namespace shiftron::cli
