// Opens the data of a run and compares it: with the model, between the sources, between the ranks.
#include "train/run_data.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "parallel/agree.h"
#include "parallel/same_settings.h"
#include "train/batches.h"

namespace shiftron {

RunData::RunData(const RunConfig& config, const ParallelLayout& layout, ControlPlane& world,
                 const AroundRead& around_read)
    : config_(config) {
  run_on_all_ranks(world, [&] {
    train_.emplace(open_loader(config, config.data.train, true));
    train_->read_by(around_read);
    if (config.evaluation.every > 0 && !config.data.validation.empty()) {
      validation_.emplace(open_loader(config, config.data.validation, false));
      validation_->read_by(around_read);
      validation_fingerprint_ = validation_->fingerprint();
      evaluation_microbatches(config, layout, *validation_);  // throws if there are too many
    }
    check_vocabulary();
    if (world.rank() != 0) return;
    train_->require_shards();
    if (validation_) validation_->require_shards();
  });
  std::vector<RankSetting> found;
  add_data(found, "data.train", config.data.train, *train_);
  if (validation_) add_data(found, "data.validation", config.data.validation, *validation_);
  require_same_settings(world, found);
}

void RunData::check_vocabulary() const {
  if (train_->vocab_size() > config_.model.vocab) {
    throw_bad_input("the data's vocabulary has ", train_->vocab_size(), " tokens, but model.vocab is ",
                    config_.model.vocab, "; set model.vocab=", train_->vocab_size(), " or more");
  }
  if (!validation_) return;
  const auto words = [](const Loader& data) { return data.tokenizer_hash().empty() ? "none" : data.tokenizer_hash(); };
  if (validation_->tokenizer_hash() != train_->tokenizer_hash()) {
    throw_bad_input("data.train and data.validation were built with different tokenizers (", words(*train_), ", ",
                    words(*validation_), "); build both with the same one");
  }
  const TokenizerSettings &learned = train_->tokenizer().settings, &held_out = validation_->tokenizer().settings;
  if (!(learned == held_out)) {
    throw_bad_input("data.train and data.validation used their tokenizer differently: ",
                    words_of(learned, train_->end_of_document()), "; ",
                    words_of(held_out, validation_->end_of_document()), "; build both with the same options");
  }
  if (validation_->vocab_size() != train_->vocab_size() ||
      validation_->end_of_document() != train_->end_of_document()) {
    throw_bad_input("data.train has a vocabulary of ", train_->vocab_size(), " (end of document ",
                    train_->end_of_document(), "), but data.validation of ", validation_->vocab_size(), " (",
                    validation_->end_of_document(), "); build both with the same --vocab and --end-of-document");
  }
}

bool RunData::keep_validation_fingerprint(const std::string& saved) {
  if (validation_fingerprint_.empty()) validation_fingerprint_ = saved;
  const bool counted_weights = validation_ && saved == validation_->fingerprint_with_weights();  // older versions did
  return !saved.empty() && !counted_weights && saved != validation_fingerprint_;
}

void RunData::warn_of_validation(Log& log) const {
  const std::vector<DataSource>& sources = config_.data.validation;
  if (sources.empty()) return;
  if (!config_.origins.contains("evaluation.every")) {
    log.warning("data.validation is not used: set evaluation.every, the number of steps between evaluations");
  }
  if (!validation_) return;
  if (sources.front().weight > 0) {
    log.warning(
        "data.validation: weights have no effect; an evaluation reads each source in proportion to its number of "
        "windows");
  }
  const std::vector<std::string> learned = train_->fingerprints_of_sources();
  const std::vector<std::string> held_out = validation_->fingerprints_of_sources();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::ranges::find(learned, held_out[i]) == learned.end()) continue;
    log.warning("data.validation: " + sources[i].directory +
                " is also in data.train, so its loss is measured on training text; `shiftron data build "
                "--validation-fraction` sets text aside");
  }
}

}  // namespace shiftron
