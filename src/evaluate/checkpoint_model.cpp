// Opening a step directory.
#include "evaluate/checkpoint_model.h"

#include "checkpoint/restore.h"
#include "checkpoint/verify.h"
#include "train/saved_state.h"

namespace shiftron {

CheckpointModel open_checkpoint(const std::string& directory) {
  refuse_other_than_a_step(directory);
  CheckpointModel model{.directory = directory, .content = read_content(directory), .config = {}};
  model.config = saved_config(model.content.state_json, directory);
  return model;
}

}  // namespace shiftron
