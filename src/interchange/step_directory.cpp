// Looks for steps, a run, and models of other programs.
#include "interchange/step_directory.h"

#include <filesystem>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/shell_word.h"
#include "interchange/megatron_source.h"
#include "run/run_files.h"

namespace shiftron {

void require_step_directory(const std::string& directory) {
  refuse_lost_link(directory);
  if (!std::filesystem::is_directory(directory)) {
    const bool is_among_steps = !list_steps(std::filesystem::path(directory + "/..").lexically_normal()).empty();
    if (is_step_name(directory) && is_among_steps && step_was_removed(directory)) throw_step_was_removed(directory);
    throw_bad_input(directory, " is not a directory; check the path");
  }
  if (name_exists(directory + "/" + kManifestName)) return;
  for (const std::string& place : {directory, checkpoints_of(directory)}) {
    const std::vector<StepDirectory> steps = list_steps(place);
    if (steps.empty()) continue;
    throw_bad_input(directory, " is not a checkpoint step (it has no ", kManifestName, "); its newest step is ",
                    steps.front().path, "; `shiftron checkpoint list ", shell_word(directory), "` lists all");
  }
  if (const std::string format = import_format_of(directory); !format.empty()) {
    throw_bad_input(directory, " is not a checkpoint step (it has no ", kManifestName, "); it looks like a model for ",
                    format == "hf" ? "Hugging Face transformers" : "Megatron-LM", ": `shiftron checkpoint import ",
                    shell_word(directory), " --format ", format, " --output RUN` converts it to a step");
  }
}

}  // namespace shiftron
