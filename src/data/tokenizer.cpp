// Tokenizes by a SentencePiece model, with byte tokens wherever the model would not keep the text.
#include "data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "data/known_words.h"
#include "data/proto_fields.h"
#include "data/sentencepiece_algorithm.h"
#include "data/utf8.h"

namespace shiftron {
namespace {

constexpr uint64_t kLargestModel = uint64_t{1} << 30;
constexpr size_t kLongestLine = 1 << 16;  // bytes given to the model at once; longer lines are cut at a space

std::string with_spaces(const std::string& piece) {
  std::string text;
  size_t from = 0;
  for (size_t at; (at = piece.find(kSpaceMark, from)) != std::string::npos; from = at + kSpaceMark.size()) {
    text.append(piece, from, at - from);
    text += ' ';
  }
  return text.append(piece, from);
}

// Field numbers of sentencepiece_model.proto: in a model, and in its NormalizerSpec.
constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kTable = 2;

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

// Whether a table normalises characters: an automaton of offsets that the library follows without checking them. Throws
// Error(bad_input) if the bytes are not a message.
bool has_table(const std::string& model, const std::string& name) {
  for (ProtoFields fields(model, name); fields.next();) {
    if (fields.field() != kNormalizer && fields.field() != kDenormalizer) continue;
    for (ProtoFields spec(fields.bytes(), name); spec.next();) {
      if (spec.field() == kTable && !spec.bytes().empty()) return true;
    }
  }
  return false;
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

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::string& path) {
  return Tokenizer(read_file(path, kLargestModel), path);
}

Tokenizer::Tokenizer(std::string model_bytes, const std::string& name, const std::string& instead)
    : name_(name),
      model_bytes_(std::move(model_bytes)),
      hash_(to_hex(xxh3_128(model_bytes_))),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto refuse = [&](const char* fault) { throw_bad_input(name, fault, "; ", instead); };
  bool is_message = true, normalises = false;
  try {
    normalises = has_table(model_bytes_, name);
  } catch (const Error&) {
    is_message = false;
  }
  // An empty message parses as a model without pieces, which crashes the library.
  if (!is_message || model_bytes_.empty() || !loads(*processor_, model_bytes_)) refuse(" is not a SentencePiece model");
  read_pieces(instead);
  if (normalises) refuse(" changes text: it normalises characters");
  check_keeps_text(instead);
  words_stand_alone_ = words_stand_alone();
}

void Tokenizer::read_pieces(const std::string& instead) {
  byte_tokens_.fill(-1);
  const int size = processor_->GetPieceSize();
  texts_.resize(static_cast<size_t>(size));
  for (int id = 0; id < size; ++id) {
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsControl(id) || processor_->IsUnknown(id)) continue;
    if (processor_->IsByte(id)) {
      const int byte = byte_of(piece);
      if (byte < 0) throw_bad_input(name_, ": byte token ", id, " has the text ", piece);
      byte_tokens_[static_cast<size_t>(byte)] = id;
      texts_[static_cast<size_t>(id)] = std::string(1, static_cast<char>(byte));
    } else {
      texts_[static_cast<size_t>(id)] = with_spaces(piece);
      if (piece == "\n") newline_ = id;
    }
  }
  const auto missing = std::find(byte_tokens_.begin(), byte_tokens_.end(), -1);
  if (missing != byte_tokens_.end()) {
    throw_bad_input(name_, " has no token for byte ", missing - byte_tokens_.begin(), ", so some texts would be lost; ",
                    instead);
  }
  if (newline_ < 0) newline_ = byte_tokens_['\n'];
  end_of_document_ = processor_->eos_id();
  if (end_of_document_ < 0 || end_of_document_ >= size || !processor_->IsControl(end_of_document_)) {
    throw_bad_input(name_, " has no </s> token to end documents with; ", instead);
  }
}

void Tokenizer::check_keeps_text(const std::string& instead) const {
  for (const std::string text : {"a", " a", "a  b ", "  ", "\xEF\xAC\x81", "e\xCC\x81", "\xEF\xBC\xA1"}) {
    std::vector<int> ids;
    if (!processor_->Encode(text, &ids).ok()) throw_bad_input(name_, " cannot encode \"", text, "\"");
    std::string kept;
    for (const int id : ids) kept += text_of(id);
    kept = with_spaces(kept);  // a model without a piece for the space writes the bytes of its mark
    if (kept != text) {
      throw_bad_input(name_, " changes text (\"", text, "\" becomes \"", kept,
                      "\"): it adds or folds spaces or normalises characters; ", instead);
    }
  }
}

// A bpe model joins neighbours, the best pair first; text elsewhere does not matter. So words end where no piece
// reaches across: before a space that follows something else. Unigram models compare sums of scores, whose rounding
// depends on the text before.
bool Tokenizer::words_stand_alone() const {
  if (algorithm_of(model_bytes_, name_) != SentencePieceAlgorithm::bpe) return false;
  for (int id = 0; id < processor_->GetPieceSize(); ++id) {
    const std::string& text = texts_[static_cast<size_t>(id)];
    if (std::isnan(processor_->GetScore(id))) return false;       // sorts both before and after others
    if (!processor_->IsByte(id) && !is_utf8(text)) return false;  // may end within a space's mark
    if (end_of_word(text, 0) != text.size()) return false;
  }
  return true;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const std::function<void(size_t)>& notify,
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
void Tokenizer::encode_line(std::string_view text, std::vector<int32_t>& tokens,
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

bool Tokenizer::are_bytes_of_a_space(std::span<const int> ids) const {
  if (ids.size() < kSpaceMark.size()) return false;
  return std::equal(kSpaceMark.begin(), kSpaceMark.end(), ids.begin(),
                    [this](char byte, int id) { return byte_tokens_[static_cast<uint8_t>(byte)] == id; });
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& tokens, KnownWords* known) const {
  const size_t before = tokens.size();
  const bool kept =
      known != nullptr && words_stand_alone_ ? encode_by_words(text, tokens, *known) : encode_by_model(text, tokens);
  if (kept) return;
  tokens.resize(before);
  for (const char byte : text) tokens.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
}

bool Tokenizer::encode_by_words(std::string_view text, std::vector<int32_t>& tokens, KnownWords& known) const {
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

bool Tokenizer::encode_by_model(std::string_view text, std::vector<int32_t>& tokens) const {
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

std::string Tokenizer::decode(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += text_of(token);
  return text;
}

const std::string& Tokenizer::text_of(int32_t token) const {
  if (token < 0 || token >= vocab_size()) {
    throw_bad_input("token ", token, " is not within the vocabulary of ", vocab_size());
  }
  return texts_[static_cast<size_t>(token)];
}

std::string Tokenizer::piece(int32_t token) const {
  text_of(token);
  return processor_->IdToPiece(token);
}

}  // namespace shiftron
