// Samples sentences of the files for the trainer.
#include "data/tokenizer_training.h"

#include <algorithm>
#include <cctype>
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
#include "tokenizer/byte_pair_training.h"
#include "tokenizer/sentencepiece_training.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

// What a trainer takes as one sentence.
struct SentenceForm {
  size_t longest;                                // bytes
  bool (*may_have)(std::string_view character);  // others end a sentence and are left out
  bool ends_before_words;                        // a long one is cut before a space between words, if it has one
  uint64_t weight_without_spaces;                // of a byte in a sentence of one long word, against others
};
// SentencePiece splits texts at the names of control tokens by itself.
// A trainer's memory and time grow with the distinct words, and such a sentence is one.
constexpr SentenceForm kSentencePieceForm{kLongestSentence, may_be_in_a_sentence, false, 16};
// The expression that finds words never reaches over such a space.
constexpr SentenceForm kBytePairForm{size_t{1} << 16, [](std::string_view) { return true; }, true, 1};

bool has_hardly_any_space(std::string_view sentence) {
  constexpr size_t kLongWord = 64;
  return sentence.size() > kLongWord * (1 + static_cast<size_t>(std::ranges::count(sentence, ' ')));
}

bool is_of_word(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0;
}

// Pieces of texts that the trainer accepts: valid UTF-8 of bounded length. If they have more bytes than `most`, those
// whose numbers have the lowest hashes are kept, as many as fit.
class Sentences {
 public:
  Sentences(uint64_t most, const SentenceForm& form) : most_(most), form_(form) {}

  void add(std::string_view text) {
    size_t begin = 0, space = 0;  // the last space between words
    const auto flush = [&](size_t end) {
      if (end > begin) draw(text.substr(begin, end - begin));
    };
    for (size_t at = 0; at < text.size();) {
      const size_t length = utf8_length(text.substr(at));
      const std::string_view character = text.substr(at, std::max<size_t>(length, 1));
      const bool forbidden = length == 0 || !form_.may_have(character);
      if (forbidden || at - begin >= form_.longest) {
        const size_t end = !forbidden && form_.ends_before_words && space > begin ? space : at;
        flush(end);
        begin = forbidden ? at + character.size() : end;
      }
      if (text[at] == ' ' && at > 0 && at + 1 < text.size() && is_of_word(text[at - 1]) && is_of_word(text[at + 1])) {
        space = at;
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

  uint64_t weight_of(std::string_view text) const {
    return text.size() * (has_hardly_any_space(text) ? form_.weight_without_spaces : 1);
  }

  void draw(std::string_view text) {
    ++seen_;
    const uint64_t hash = xxh3_64(&seen_, sizeof seen_);
    if (hash >= bound_) return;
    kept_.push_back({hash, seen_, std::string(text)});
    std::push_heap(kept_.begin(), kept_.end());
    weight_ += weight_of(text);
    while (weight_ > most_) {
      std::pop_heap(kept_.begin(), kept_.end());
      bound_ = kept_.back().hash;
      weight_ -= weight_of(kept_.back().text);
      kept_.pop_back();
    }
  }

  const uint64_t most_;  // bytes
  const SentenceForm& form_;
  uint64_t seen_ = 0;
  uint64_t weight_ = 0;          // of the kept ones, in bytes
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

// Joins the lines of a text file, because pieces of their ends are learned too.
class JoinedLines {
 public:
  explicit JoinedLines(Sentences& sentences) : sentences_(sentences) {}
  void add(const TextDocument& line) {
    // No word continues on a line that begins with a letter or digit.
    const bool may_cut = !line.text.empty() && is_of_word(line.text.front());
    if (line.file_number != file_ || (may_cut && text_.size() >= kBytePairForm.longest / 2)) finish();
    file_ = line.file_number;
    text_.append(line.text) += '\n';
  }
  void finish() {
    sentences_.add(text_);
    text_.clear();
  }

 private:
  Sentences& sentences_;
  std::string text_;
  size_t file_ = 0;
};

std::vector<std::string> read_sentences(const TokenizerTraining& training, const SentenceForm& form,
                                        TokenizerText& text) {
  const std::vector<InputFile> files =
      training.recognised.empty() ? recognise_inputs(training.files) : training.recognised;
  DocumentFormat format{training.document_separator, training.text_key};
  check_format(files, format);
  const bool joins_lines = format.separator.empty() && &form == &kBytePairForm;
  if (format.separator.empty()) format.separator = "\n";  // so that no file is held in memory as a whole
  Progress progress("reading text", total_bytes(files), "bytes");
  Sentences sentences(training.sample_bytes, form);
  JoinedLines lines(sentences);
  BadLines bad(training.skip_bad);
  read_documents(
      files, format,
      [&](const TextDocument& document) {
        if (joins_lines && files[document.file_number].kind == InputKind::text) {
          lines.add(document);
        } else {
          sentences.add(document.text);
        }
        text.foreign_bytes += count_foreign_bytes(document.text);
        text.replaced_surrogates += document.replaced;
        progress.update(document.bytes_read);
      },
      bad);
  lines.finish();
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
  return kept;
}

void warn_of_long_words(const std::vector<std::string>& sentences, const TokenizerTraining& training) {
  constexpr uint64_t kMuch = uint64_t{1} << 20;
  uint64_t bytes = 0;
  for (const std::string& sentence : sentences) bytes += has_hardly_any_space(sentence) ? sentence.size() : 0;
  if (bytes < kMuch || !training.warn) return;
  training.warn(detail::concatenate(
      bytes >> 20,
      " MiB of the text have hardly any spaces: for each, training takes about 100 MiB of memory and 10 to "
      "20 seconds of a processor; for less, lower --sample-bytes or give --kind byte-bpe"));
}

std::string train_byte_level(const TokenizerTraining& training, TokenizerText& text) {
  BytePairTraining how{.vocab = training.vocab, .special_tokens = {kBytePairEnd}};
  how.special_tokens.insert(how.special_tokens.end(), training.special_tokens.begin(), training.special_tokens.end());
  const std::vector<std::string> texts = read_sentences(training, kBytePairForm, text);
  const Heartbeat heartbeat("training the tokenizer");
  return train_byte_pairs(count_words(texts, training.threads), how);
}

}  // namespace

std::string train_tokenizer(const TokenizerTraining& training, TokenizerText* text) {
  TokenizerText found;
  TokenizerText& said = text != nullptr ? *text : found;
  if (training.kind == kByteLevelKind) return train_byte_level(training, said);
  if (training.kind != "bpe" && training.kind != "unigram") {
    throw_bad_input("tokenizer kind \"", training.kind, "\" is unknown; use bpe, unigram or byte-bpe");
  }
  if (!training.special_tokens.empty()) {
    throw_bad_input("special tokens can be added to tokenizers of kind byte-bpe only, not to ", training.kind);
  }
  if (training.vocab <= kFixedPieces || training.vocab > kMostVocab) {
    throw_bad_input("vocab ", training.vocab, ": must be between ", kFixedPieces + 1, " (", kFixedPieces,
                    " are the bytes, newline, end of document and unknown) and ", kMostVocab);
  }
  if (!(training.character_coverage >= kLeastCoverage && training.character_coverage <= 1)) {
    throw_bad_input("character coverage ", training.character_coverage, ": must be between ", kLeastCoverage, " and 1");
  }
  std::vector<std::string> sentences = read_sentences(training, kSentencePieceForm, said);
  warn_of_long_words(sentences, training);
  // The trainer ends the process if a required character does not occur.
  const auto has_space = [](const std::string& sentence) { return sentence.find(' ') != std::string::npos; };
  if (std::none_of(sentences.begin(), sentences.end(), has_space)) sentences.emplace_back(" ");
  const Heartbeat heartbeat("training the tokenizer");
  return train_sentencepiece(sentences, {.kind = training.kind,
                                         .vocab = training.vocab,
                                         .character_coverage = training.character_coverage,
                                         .quiet = training.quiet});
}

}  // namespace shiftron
