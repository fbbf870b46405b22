// Trains a SentencePiece model whose tokens keep every text.
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "core/check.h"
#include "core/hash.h"
#include "core/progress.h"
#include "core/thread_without_signals.h"
#include "data/bad_lines.h"
#include "data/documents.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

namespace shiftron {
namespace {

constexpr size_t kLongestSentence = 4000;  // bytes; the trainer skips sentences longer than 4,192
constexpr int64_t kFixedTokens = 259;      // unknown, end of document, newline and 256 bytes

// Pieces of lines that the trainer accepts: valid UTF-8 of bounded length, without the marks that it uses itself. (It
// splits texts at the names of control tokens by itself.) If they have more bytes than `most`, those whose numbers have
// the lowest hashes are kept, as many as fit.
class Sentences {
 public:
  explicit Sentences(uint64_t most) : most_(most) {}

  void add(std::string_view text) {
    size_t begin = 0;
    const auto flush = [&](size_t end) {
      if (end > begin) draw(text.substr(begin, end - begin));
    };
    for (size_t at = 0; at < text.size();) {
      const size_t length = utf8_length(text.substr(at));
      const std::string_view character = text.substr(at, std::max<size_t>(length, 1));
      const bool forbidden = length == 0 || character == "\n" || character == std::string_view("\0", 1) ||
                             character == kSpaceMark || character == "\xE2\x96\x85";  // U+2585
      if (forbidden || at - begin >= kLongestSentence) {
        flush(at);
        begin = forbidden ? at + character.size() : at;
      }
      at += character.size();
    }
    flush(text.size());
  }

  uint64_t seen() const { return seen_; }  // sentences, kept or not

  // The kept ones, in the order of adding.
  std::vector<std::string> take() {
    std::sort(kept_.begin(), kept_.end(), [](const Kept& a, const Kept& b) { return a.number < b.number; });
    std::vector<std::string> sentences;
    for (Kept& one : kept_) sentences.push_back(std::move(one.text));
    return sentences;
  }

 private:
  struct Kept {
    uint64_t hash;
    uint64_t number;
    std::string text;
    bool operator<(const Kept& other) const { return hash < other.hash; }
  };

  void draw(std::string_view text) {
    ++seen_;
    const uint64_t hash = xxh3_64(&seen_, sizeof seen_);
    if (hash >= bound_) return;
    kept_.push_back({hash, seen_, std::string(text)});
    std::push_heap(kept_.begin(), kept_.end());
    bytes_ += text.size();
    while (bytes_ > most_) {
      std::pop_heap(kept_.begin(), kept_.end());
      bound_ = kept_.back().hash;
      bytes_ -= kept_.back().text.size();
      kept_.pop_back();
    }
  }

  const uint64_t most_;  // bytes
  uint64_t seen_ = 0;
  uint64_t bytes_ = 0;           // kept
  uint64_t bound_ = UINT64_MAX;  // of the hashes
  std::vector<Kept> kept_;       // a heap, the highest hash first
};

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

// Reports from time to time that work without a known end is still running.
class Heartbeat {
 public:
  explicit Heartbeat(const std::string& label)
      : thread_(thread_without_signals([this, label] {
          Progress progress(label, 0, "");
          std::unique_lock lock(mutex_);
          while (!wake_.wait_for(lock, std::chrono::milliseconds(200), [this] { return stop_; })) progress.update(0);
        })) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

std::vector<std::string> read_sentences(const TokenizerTraining& training, TokenizerText& text) {
  const std::vector<InputFile> files =
      training.recognised.empty() ? recognise_inputs(training.files) : training.recognised;
  DocumentFormat format{training.document_separator, training.text_key};
  check_format(files, format);
  if (format.separator.empty()) format.separator = "\n";  // so that no file is held in memory as a whole
  Progress progress("reading text", total_bytes(files), "bytes");
  Sentences sentences(training.sample_bytes);
  BadLines bad(training.skip_bad);
  read_documents(
      files, format,
      [&](const TextDocument& document) {
        sentences.add(document.text);
        text.foreign_bytes += count_foreign_bytes(document.text);
        text.replaced_surrogates += document.replaced;
        progress.update(document.bytes_read);
      },
      bad);
  text.bad_lines = bad.count();
  text.first_bad = bad.first();
  if (sentences.seen() == 0) {
    throw_bad_input("no text to train the tokenizer on in ", files.front().path,
                    files.size() > 1 ? " and the other inputs" : "");
  }
  std::vector<std::string> kept = sentences.take();
  if (kept.empty()) {
    throw_bad_input("every sentence of the text is longer than the sample of ", training.sample_bytes,
                    " bytes; raise --sample-bytes");
  }
  // The trainer ends the process if a required character does not occur.
  const auto has_space = [](const std::string& sentence) { return sentence.find(' ') != std::string::npos; };
  if (std::none_of(kept.begin(), kept.end(), has_space)) kept.emplace_back(" ");
  return kept;
}

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

std::string Tokenizer::train(const TokenizerTraining& training, TokenizerText* text) {
  if (training.kind != "bpe" && training.kind != "unigram") {
    throw_bad_input("tokenizer kind \"", training.kind, "\" is unknown; use bpe or unigram");
  }
  if (training.vocab <= kFixedTokens || training.vocab > kMostVocab) {
    throw_bad_input("vocab ", training.vocab, ": must be between ", kFixedTokens + 1, " (", kFixedTokens,
                    " are the bytes, newline, end of document and unknown) and ", kMostVocab);
  }
  if (!(training.character_coverage >= kLeastCoverage && training.character_coverage <= 1)) {
    throw_bad_input("character coverage ", training.character_coverage, ": must be between ", kLeastCoverage, " and 1");
  }
  TokenizerText found;
  const std::vector<std::string> sentences = read_sentences(training, found);
  if (text != nullptr) *text = found;
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
  const Heartbeat heartbeat("training the tokenizer");
  try {
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
    if (!status.ok()) throw_training_failure(status.error_message(), training.vocab);
  } catch (const std::system_error& error) {
    throw_thread_start_error(error);
  }
  return model;
}

}  // namespace shiftron
