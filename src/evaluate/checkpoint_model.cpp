// Opening a step directory.
#include "evaluate/checkpoint_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"

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
  const nlohmann::json state = nlohmann::json::parse(model.content.state_json);
  model.config = config_from_json(state.at("configuration").dump(), directory);
  return model;
}

}  // namespace shiftron
