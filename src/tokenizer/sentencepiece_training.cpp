// Settings for which no text is changed, and which bytes and newlines have tokens of their own.
#include "tokenizer/sentencepiece_training.h"

#include <sentencepiece_trainer.h>

#include <cstdlib>
#include <unordered_map>

#include "core/check.h"
#include "core/thread_without_signals.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

class SentenceIterator : public sentencepiece::SentenceIterator {
 public:
  explicit SentenceIterator(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ >= sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

// The number after `phrase` in the trainer's message; -1 if the phrase does not occur.
int64_t number_after(const std::string& message, const std::string& phrase) {
  const size_t at = message.find(phrase);
  if (at == std::string::npos) return -1;
  return std::strtoll(message.c_str() + at + phrase.size(), nullptr, 10);
}

[[noreturn]] void throw_training_failure(const std::string& message, int64_t vocab) {
  const int64_t most = number_after(message, "Please set it to a value <= ");
  if (most >= 0) {
    throw_bad_input("vocab ", vocab, " is larger than this text supports: at most ", most,
                    "; lower --vocab or give more text");
  }
  if (message.find("required_chars") != std::string::npos) {
    throw_bad_input("vocab ", vocab, " is too small for the characters of this text, which need ",
                    number_after(message, " vs "), "; raise --vocab or lower --character-coverage");
  }
  throw_bad_input("the tokenizer cannot be trained: ", message);
}

}  // namespace

bool may_be_in_a_sentence(std::string_view character) {
  return character != "\n" && character != std::string_view("\0", 1) && character != kSpaceMark &&
         character != "\xE2\x96\x85";  // U+2585
}

std::string train_sentencepiece(const std::vector<std::string>& sentences, const SentencePieceTraining& training) {
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", training.kind},
      {"vocab_size", std::to_string(training.vocab)},
      {"character_coverage", std::to_string(training.character_coverage)},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"byte_fallback", "true"},
      {"required_chars", std::string(kSpaceMark)},
      {"user_defined_symbols", "\n"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"input_sentence_size", "0"},
      {"shuffle_input_sentence", "false"},
      {"train_extremely_large_corpus", sentences.size() > 5000000 ? "true" : "false"},
      {"num_threads", "2"},  // fixed: sums depend on how the work is split
      {"minloglevel", training.quiet ? "2" : "0"},
  };
  SentenceIterator iterator(sentences);
  std::string model;
  try {
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
    if (!status.ok()) throw_training_failure(status.error_message(), training.vocab);
  } catch (const std::system_error& error) {
    throw_thread_start_error(error);
  }
  return model;
}

}  // namespace shiftron
