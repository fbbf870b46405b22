// Opening a step directory.
#include "evaluate/checkpoint_model.h"

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "interchange/step_directory.h"
#include "run/saved_state.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {

CheckpointModel open_checkpoint(const std::string& directory) {
  require_step_directory(directory);
  const Manifest manifest = read_manifest(directory);
  CheckpointModel model{.directory = directory,
                        .manifest_hash = manifest.hash,
                        .content = read_content(directory, manifest),
                        .config = {}};
  model.config = saved_config(model.content.state_json, directory);
  return model;
}

std::string vocab_fault(const Tokenizer& tokenizer, int64_t vocab, const std::string& name) {
  if (tokenizer.vocab_size() <= vocab) return "";
  return detail::concatenate(name, " has ", tokenizer.vocab_size(), " tokens, but the model has only ", vocab,
                             ", so it belongs to another model");
}

void require_vocab(const Tokenizer& tokenizer, int64_t vocab, const std::string& name) {
  if (const std::string fault = vocab_fault(tokenizer, vocab, name); !fault.empty()) {
    throw_bad_input(fault, "; train with model.vocab=", tokenizer.vocab_size(),
                    " or more, on a dataset that `shiftron data verify` accepts");
  }
}

std::unique_ptr<const Tokenizer> tokenizer_for_vocab(int64_t vocab, const StoredTokenizer& stored,
                                                     const std::string& name) {
  std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(stored, name);
  require_vocab(*tokenizer, vocab, name);
  return tokenizer;
}

std::string tokenizer_path(const CheckpointModel& model) {
  return model.directory + "/" + model.content.tokenizer.file.name;
}

std::unique_ptr<const Tokenizer> usable_tokenizer(const StoredTokenizer& stored, const std::string& name) {
  if (!stored.is_there()) return nullptr;
  try {
    return make_tokenizer(stored, name);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    return nullptr;
  }
}

std::unique_ptr<const Tokenizer> tokenizer_of(const CheckpointModel& model) {
  if (!model.content.tokenizer.is_there()) {
    const SavedState state = saved_state(model.content.state_json, model.directory);
    const std::string why = state.without_tokenizer.empty()
                                ? "it was imported without a tokenizer that this program can read"
                                : state.without_tokenizer;
    throw_bad_input(model.directory, " has no tokenizer: ", why);
  }
  return tokenizer_for_vocab(model.config.model.vocab, model.content.tokenizer, tokenizer_path(model));
}

}  // namespace shiftron
