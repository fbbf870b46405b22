// Opening a step directory.
#include "evaluate/checkpoint_model.h"

#include <filesystem>

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "train/resume.h"

namespace shiftron {

CheckpointModel open_checkpoint(const std::string& directory) {
  if (!std::filesystem::exists(directory + "/" + kManifestName)) {
    std::string hint;
    for (const std::string& place : {directory, directory + "/checkpoints"}) {
      const auto steps = list_steps(place);
      if (!steps.empty() && hint.empty()) hint = "; its newest step is " + steps.front().path;
    }
    throw_bad_input(directory, " is no step of a checkpoint (it has no ", kManifestName, ")", hint);
  }
  CheckpointModel model{.directory = directory, .content = read_content(directory), .config = {}};
  model.config = saved_config(model.content.state_json, directory);
  return model;
}

}  // namespace shiftron
