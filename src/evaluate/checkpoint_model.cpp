// Opening a step directory.
#include "evaluate/checkpoint_model.h"

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "checkpoint/verify.h"
#include "train/saved_state.h"

namespace shiftron {

CheckpointModel open_checkpoint(const std::string& directory) {
  refuse_other_than_a_step(directory);
  CheckpointModel model{.directory = directory, .content = read_content(directory), .config = {}};
  model.config = saved_config(model.content.state_json, directory);
  return model;
}

Tokenizer tokenizer_of(const CheckpointModel& model) {
  if (model.content.tokenizer_model.empty()) {
    const SavedState state = saved_state(model.content.state_json, model.directory);
    const std::string why = state.without_tokenizer.empty()
                                ? "what it was imported from brought none that this program reads"
                                : state.without_tokenizer;
    throw_bad_input(model.directory, " has no tokenizer: ", why);
  }
  return {model.content.tokenizer_model, model.directory + "/" + kTokenizerName};
}

}  // namespace shiftron
