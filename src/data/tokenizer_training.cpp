// Samples sentences of the files for the trainer.
#include "data/tokenizer_training.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/hash.h"
#include "core/progress.h"
#include "core/thread_without_signals.h"
#include "data/bad_lines.h"
#include "data/documents.h"
#include "tokenizer/sentencepiece_training.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

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
      const bool forbidden = length == 0 || !may_be_in_a_sentence(character);
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

}  // namespace

std::string train_tokenizer(const TokenizerTraining& training, TokenizerText* text) {
  if (training.kind != "bpe" && training.kind != "unigram") {
    throw_bad_input("tokenizer kind \"", training.kind, "\" is unknown; use bpe or unigram");
  }
  if (training.vocab <= kFixedPieces || training.vocab > kMostVocab) {
    throw_bad_input("vocab ", training.vocab, ": must be between ", kFixedPieces + 1, " (", kFixedPieces,
                    " are the bytes, newline, end of document and unknown) and ", kMostVocab);
  }
  if (!(training.character_coverage >= kLeastCoverage && training.character_coverage <= 1)) {
    throw_bad_input("character coverage ", training.character_coverage, ": must be between ", kLeastCoverage, " and 1");
  }
  TokenizerText found;
  const std::vector<std::string> sentences = read_sentences(training, found);
  if (text != nullptr) *text = found;
  const Heartbeat heartbeat("training the tokenizer");
  return train_sentencepiece(sentences, {.kind = training.kind,
                                         .vocab = training.vocab,
                                         .character_coverage = training.character_coverage,
                                         .quiet = training.quiet});
}

}  // namespace shiftron
