// Opening a step directory.
#include "evaluate/checkpoint_model.h"

#include <nlohmann/json.hpp>

#include "checkpoint/restore.h"
#include "checkpoint/verify.h"

namespace shiftron {

CheckpointModel open_checkpoint(const std::string& directory) {
  refuse_other_than_a_step(directory);
  CheckpointModel model{.directory = directory, .content = read_content(directory), .config = {}};
  const nlohmann::json state = nlohmann::json::parse(model.content.state_json);
  model.config = config_from_json(state.at("configuration").dump(), directory);
  return model;
}

}  // namespace shiftron
