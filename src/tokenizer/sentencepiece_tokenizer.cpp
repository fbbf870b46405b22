// Tokenizes by a SentencePiece model, with byte tokens wherever the model would not keep the text.
#include "tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/shell_word.h"
#include "tokenizer/known_words.h"
#include "tokenizer/proto_fields.h"
#include "tokenizer/sentencepiece_algorithm.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr size_t kLongestLine = 1 << 16;  // bytes given to the model at once; longer lines are cut at a space

// Field numbers of sentencepiece_model.proto: in a model and in a piece; and a type of pieces.
constexpr uint64_t kPiece = 1;
constexpr uint64_t kPieceText = 1, kPieceType = 3, kControlType = 3;

// "<0x41>" → 65; -1 for anything else.
int byte_of(const std::string& piece) {
  if (piece.size() != 6 || piece.compare(0, 3, "<0x") != 0 || piece[5] != '>') return -1;
  int value = 0;
  for (const char digit : {piece[3], piece[4]}) {
    const auto place = std::string_view("0123456789ABCDEF").find(digit);
    if (place == std::string_view::npos) return -1;
    value = value * 16 + static_cast<int>(place);
  }
  return value;
}

// The number of the control token of that name. Throws Error(bad_input) if the model has none.
int32_t control_token(const std::string& model, const std::string& name, const std::string& text) {
  int32_t id = 0;
  for (ProtoFields fields(model, name); fields.next();) {
    if (fields.field() != kPiece) continue;
    std::string_view piece;
    uint64_t type = 0;
    for (ProtoFields parts(fields.bytes(), name); parts.next();) {
      if (parts.field() == kPieceText) piece = parts.bytes();
      if (parts.field() == kPieceType) type = parts.number();
    }
    if (piece == text && type == kControlType) return id;
    ++id;
  }
  throw_bad_input(name, " has no control token \"", printable(text),
                  "\"; list its tokens with `shiftron tokenizer inspect ", shell_word(name), " --pieces 10`");
}

// A word is its spaces and what follows up to the next space.
size_t end_of_word(std::string_view text, size_t begin) {
  const size_t letter = std::min(text.find_first_not_of(' ', begin), text.size());
  return std::min(text.find(' ', letter), text.size());
}

// The library reports some faults of a model, and throws its own exceptions for others, such as a piece without text.
// An exception for lack of memory says nothing about the model.
bool loads(sentencepiece::SentencePieceProcessor& processor, const std::string& model) {
  try {
    return processor.LoadFromSerializedProto(model).ok() && processor.GetPieceSize() > 0;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

SentencePieceTokenizer::~SentencePieceTokenizer() = default;
SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceTokenizer&&) noexcept = default;
SentencePieceTokenizer& SentencePieceTokenizer::operator=(SentencePieceTokenizer&&) noexcept = default;

SentencePieceTokenizer::SentencePieceTokenizer(std::string model_bytes, const std::string& name,
                                               const std::string& advice, const TokenizerSettings& settings)
    : Tokenizer({kSentencePieceFile, std::move(model_bytes)}, name),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto refuse = [&](const char* fault) { throw_bad_input(name, fault, "; ", advice); };
  const std::string& model = file().bytes;
  bool is_message = true, normalises = false;
  try {
    normalises = normalises_characters(model, name);
  } catch (const Error&) {
    is_message = false;
  }
  // An empty message parses as a model without pieces, which crashes the library.
  if (!is_message || model.empty() || !loads(*processor_, model)) refuse(" is not a SentencePiece model");
  read_pieces(advice);
  apply(settings, advice);
  if (normalises) refuse(" changes text: it normalises characters");
  check_keeps_text(advice);
  words_stand_alone_ = words_stand_alone();
}

void SentencePieceTokenizer::read_pieces(const std::string& advice) {
  byte_tokens_.fill(-1);
  const int size = processor_->GetPieceSize();
  texts_.resize(static_cast<size_t>(size));
  is_special_.resize(static_cast<size_t>(size));
  for (int id = 0; id < size; ++id) {
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsControl(id) || processor_->IsUnknown(id)) {
      is_special_[static_cast<size_t>(id)] = true;
    } else if (processor_->IsByte(id)) {
      const int byte = byte_of(piece);
      if (byte < 0) throw_bad_input(name(), ": byte token ", id, " has the text ", piece);
      byte_tokens_[static_cast<size_t>(byte)] = id;
      texts_[static_cast<size_t>(id)] = std::string(1, static_cast<char>(byte));
    } else {
      texts_[static_cast<size_t>(id)] = with_spaces(piece);
      if (piece == "\n") newline_ = id;
    }
  }
  const auto missing = std::find(byte_tokens_.begin(), byte_tokens_.end(), -1);
  if (missing != byte_tokens_.end()) {
    throw_bad_input(name(), " has no token for byte ", missing - byte_tokens_.begin(),
                    ", so some texts would be lost; ", advice);
  }
  if (newline_ < 0) newline_ = byte_tokens_['\n'];
}

void SentencePieceTokenizer::apply(const TokenizerSettings& settings, const std::string& advice) {
  settings_ = settings;
  if (settings_.special_text) {
    throw_bad_input(name(), " is a SentencePiece model, in which names of special tokens are always text");
  }
  const auto is_control = [&](int id) {
    return id >= 0 && id < processor_->GetPieceSize() && processor_->IsControl(id);
  };
  if (settings_.end_of_document < 0) {
    settings_.end_of_document = processor_->eos_id();
    if (!is_control(settings_.end_of_document)) {
      throw_bad_input(name(), " has no </s> token to end documents with; ", advice);
    }
  }
  for (const int32_t id : {settings_.end_of_document, settings_.beginning_of_document}) {
    if (id >= 0 && !is_control(id)) throw_bad_input(name(), ": token ", id, " is not one of its control tokens");
  }
  const int32_t end = processor_->eos_id();
  file_states_settings_ = is_control(end) && settings_ == TokenizerSettings{.end_of_document = end};
}

void SentencePieceTokenizer::check_keeps_text(const std::string& advice) const {
  for (const std::string text : {"a", " a", "a  b ", "  ", "\xEF\xAC\x81", "e\xCC\x81", "\xEF\xBC\xA1"}) {
    std::vector<int> ids;
    if (!processor_->Encode(text, &ids).ok()) throw_bad_input(name(), " cannot encode \"", text, "\"");
    std::string kept;
    for (const int id : ids) kept += text_of(id);
    kept = with_spaces(kept);  // a model without a piece for the space writes the bytes of its mark
    if (kept != text) {
      throw_bad_input(name(), " changes text (\"", text, "\" becomes \"", kept,
                      "\"): it adds or folds spaces or normalises characters; ", advice);
    }
  }
}

// A bpe model joins neighbours, the best pair first; text elsewhere does not matter. So words end where no piece
// reaches across: before a space that follows something else. Unigram models compare sums of scores, whose rounding
// depends on the text before.
bool SentencePieceTokenizer::words_stand_alone() const {
  if (algorithm_of(file().bytes, name()) != SentencePieceAlgorithm::bpe) return false;
  for (int id = 0; id < processor_->GetPieceSize(); ++id) {
    const std::string& text = texts_[static_cast<size_t>(id)];
    if (std::isnan(processor_->GetScore(id))) return false;       // sorts both before and after others
    if (!processor_->IsByte(id) && !is_utf8(text)) return false;  // may end within a space's mark
    if (end_of_word(text, 0) != text.size()) return false;
  }
  return true;
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text, const std::function<void(size_t)>& notify,
                                                    KnownWords* known) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3 + 8);
  for (size_t begin = 0; begin < text.size();) {  // newlines are tokens of their own, so lines are independent
    const size_t end = std::min(text.find('\n', begin), text.size());
    encode_line(
        text.substr(begin, end - begin), tokens,
        [&](size_t done) {
          if (notify) notify(begin + done);
        },
        known);
    if (end < text.size()) tokens.push_back(newline_);
    begin = end + 1;
  }
  return tokens;
}

// Splits off what the model cannot keep: invalid UTF-8, NUL and the character that it uses for spaces.
void SentencePieceTokenizer::encode_line(std::string_view text, std::vector<int32_t>& tokens,
                                         const std::function<void(size_t)>& notify, KnownWords* known) const {
  size_t start = 0;
  size_t at = 0;
  size_t last_space = 0;
  const auto flush = [&](size_t end) {
    if (end > start) encode_plain(text.substr(start, end - start), tokens, known);
    start = end;
    notify(end);
  };
  while (at < text.size()) {
    const size_t length = utf8_length(text.substr(at));
    const bool keep = length > 0 && text[at] != '\0' && text.substr(at, length) != kSpaceMark;
    if (!keep) {
      flush(at);
      const size_t bytes = std::max<size_t>(length, 1);
      for (const char byte : text.substr(at, bytes)) tokens.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
      start = at + bytes;
    } else if (at - start >= kLongestLine) {
      flush(last_space > start ? last_space : at);
    }
    if (text[at] == ' ') last_space = at;
    at += std::max<size_t>(length, 1);
  }
  flush(text.size());
}

bool SentencePieceTokenizer::are_bytes_of_a_space(std::span<const int> ids) const {
  if (ids.size() < kSpaceMark.size()) return false;
  return std::equal(kSpaceMark.begin(), kSpaceMark.end(), ids.begin(),
                    [this](char byte, int id) { return byte_tokens_[static_cast<uint8_t>(byte)] == id; });
}

void SentencePieceTokenizer::encode_plain(std::string_view text, std::vector<int32_t>& tokens,
                                          KnownWords* known) const {
  const size_t before = tokens.size();
  const bool kept =
      known != nullptr && words_stand_alone_ ? encode_by_words(text, tokens, *known) : encode_by_model(text, tokens);
  if (kept) return;
  tokens.resize(before);
  for (const char byte : text) tokens.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
}

bool SentencePieceTokenizer::encode_by_words(std::string_view text, std::vector<int32_t>& tokens,
                                             KnownWords& known) const {
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view word = text.substr(begin, end_of_word(text, begin) - begin);
    begin += word.size();
    if (const auto found = known.find(word)) {
      tokens.insert(tokens.end(), found->begin(), found->end());
      continue;
    }
    const size_t before = tokens.size();
    if (!encode_by_model(word, tokens)) return false;
    known.add(word, std::span(tokens).subspan(before));
  }
  return true;
}

bool SentencePieceTokenizer::encode_by_model(std::string_view text, std::vector<int32_t>& tokens) const {
  std::vector<int> ids;
  bool kept = processor_->Encode(absl::string_view(text.data(), text.size()), &ids).ok();
  size_t at = 0;
  for (size_t i = 0; kept && i < ids.size(); ++i) {
    int id = ids[i];
    // A model without a piece for the space writes the bytes of its mark; the mark itself is not in `text`.
    if (at < text.size() && text[at] == ' ' && are_bytes_of_a_space(std::span(ids).subspan(i))) {
      id = byte_tokens_[' '];
      i += kSpaceMark.size() - 1;
    }
    const std::string& part = text_of(id);
    kept = !part.empty() && text.compare(at, part.size(), part) == 0;
    at += part.size();
    tokens.push_back(id);
  }
  return kept && at == text.size();
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += text_of(id);
  return text;
}

std::string SentencePieceTokenizer::piece(int32_t id) const {
  text_of(id);
  return processor_->IdToPiece(id);
}

std::vector<std::pair<std::string, std::string>> SentencePieceTokenizer::description() const {
  const SentencePieceAlgorithm algorithm = algorithm_of(file().bytes, name());
  const char* const model = algorithm == SentencePieceAlgorithm::bpe       ? "bpe"
                            : algorithm == SentencePieceAlgorithm::unigram ? "unigram"
                                                                           : "of another type";
  return {{"kind", "SentencePiece"}, {"model", model}};
}

bool recognises_sentencepiece(const std::string& bytes) {
  constexpr char kPieceTag = '\x0A';  // which is also a line feed, with which a JSON file may begin
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return bytes.starts_with(kPieceTag) && (first == std::string::npos || bytes[first] != '{');
}

std::unique_ptr<Tokenizer> make_sentencepiece(std::string bytes, const TokenizerSettings& settings,
                                              const std::string& name, const std::string& advice) {
  return std::make_unique<SentencePieceTokenizer>(std::move(bytes), name, advice, settings);
}

std::unique_ptr<Tokenizer> load_sentencepiece(std::string bytes, const std::string& path, const TokenizerChoice& choice,
                                              const std::string& advice) {
  TokenizerSettings settings;
  settings.special_text = choice.special_text;
  if (choice.end_of_document) settings.end_of_document = control_token(bytes, path, *choice.end_of_document);
  if (choice.beginning_of_document && *choice.beginning_of_document != kNoToken) {
    settings.beginning_of_document = control_token(bytes, path, *choice.beginning_of_document);
  }
  return std::make_unique<SentencePieceTokenizer>(std::move(bytes), path, advice, settings);
}

}  // namespace shiftron
