// Reads the parts of the file and runs a text through them.
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/foreign_text.h"
#include "tokenizer/hugging_face/byte_level.h"
#include "tokenizer/hugging_face/named_tokens.h"
#include "tokenizer/hugging_face/read_token_model.h"
#include "tokenizer/known_words.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr size_t kNotifyBytes = 1 << 16;

TextSet hidden_pieces(const std::vector<AddedToken>& added, const TokenizerSettings& settings) {
  TextSet hidden;
  if (settings.special_text) return hidden;
  for (const AddedToken& token : added) {
    if (token.is_special) hidden.insert(token.text);
  }
  return hidden;
}

// Up to the first byte that belongs to no character.
size_t valid_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : utf8_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

// "Sequence(Split(\\p{N}+), ByteLevel)".
std::string words_for(const nlohmann::json& part) {
  if (!part.is_object()) return "none";
  std::string inside;
  for (const char* const key : {"normalizers", "pretokenizers", "decoders", "processors"}) {
    if (!part.contains(key)) continue;
    for (const nlohmann::json& one : part[key]) inside += (inside.empty() ? "" : ", ") + words_for(one);
  }
  if (part.contains("pattern") && part["pattern"].is_object()) {
    for (const auto& [kind, pattern] : part["pattern"].items()) inside = kind + " " + pattern.dump();
  }
  return part.value("type", "") + (inside.empty() ? "" : "(" + inside + ")");
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(std::string bytes, const nlohmann::json& content,
                                           const TokenizerSettings& settings, const std::string& name)
    : Tokenizer({kHuggingFaceFile, std::move(bytes)}, name) {
  settings_ = settings;
  const JsonPart file(content, name);
  added_ = read_added_tokens(file["added_tokens"]);
  for (const int32_t id : {settings.end_of_document, settings.beginning_of_document}) {
    if (std::ranges::find(added_, id, &AddedToken::id) != added_.end()) continue;
    if (auto token = named_token(file["model"], id)) added_.push_back(std::move(*token));
  }
  for (AddedToken& token : added_) {
    // As transformers does for the tokens that tokenizer_config.json names.
    if (token.id == settings.end_of_document || token.id == settings.beginning_of_document) token.is_special = true;
  }
  normalizer_ = read_normalizer(file["normalizer"]);
  auto pre_tokenizer = read_pre_tokenizer(file["pre_tokenizer"]);
  const bool is_byte_pair = file["model"]["type"].text_or("BPE") == "BPE";
  const bool gives_bytes = pre_tokenizer && is_byte_pair && pre_tokenizer->give_bytes();
  pre_tokenizer_ = std::move(pre_tokenizer);
  model_ = read_token_model(file["model"], {gives_bytes, hidden_pieces(added_, settings)});
  decoder_ = read_decoder(file["decoder"]);
  read_pieces(content);
  read_byte_tokens();
  make_finders();
  description_ = {{"kind", "Hugging Face"}};
  for (const char* const key : {"normalizer", "pre_tokenizer", "model", "post_processor", "decoder"}) {
    description_.emplace_back(key, words_for(file[key].value()));
  }
  if (loses_characters_) description_.emplace_back("characters_without_token", "left out");
  cuts_at_marks_ = !pre_tokenizer_ && model_->can_cut_before(kSpaceMark);
  for (const int32_t id : {settings.end_of_document, settings.beginning_of_document}) {
    if (id >= 0 && std::ranges::find(added_, id, &AddedToken::id) == added_.end()) {
      throw_bad_input(name, ": token ", id, " is to begin or end documents, but is not an added token");
    }
  }
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() = default;

void HuggingFaceTokenizer::read_pieces(const nlohmann::json& content) {
  const JsonPart file(content, name());
  // Memory is proportional to the largest id, which a damaged file must not choose freely.
  const size_t most = 4 * (model_->ids().size() + added_.size()) + 65536;
  const auto set = [&](int32_t id, const std::string& piece) {
    const auto at = static_cast<size_t>(id);
    if (at >= most)
      throw_bad_input(name(), ": the id ", id, " of \"", printable(piece), "\" leaves too many ids unused");
    if (at >= pieces_.size()) {
      pieces_.resize(at + 1);
      exists_.resize(at + 1);
      is_special_.resize(at + 1, true);
    }
    pieces_[at] = piece;
    exists_[at] = true;
    is_special_[at] = false;
  };
  for (const auto& [piece, id] : model_->ids()) set(id, piece);
  for (const AddedToken& token : added_) {
    const auto own = model_->ids().find(token.text);
    const bool is_other = own == model_->ids().end() && static_cast<size_t>(token.id) < exists_.size() &&
                          exists_[static_cast<size_t>(token.id)] &&
                          pieces_[static_cast<size_t>(token.id)] != token.text;
    if (is_other || (own != model_->ids().end() && own->second != token.id)) {
      file["added_tokens"].refuse("\"", printable(token.text), "\" has the id ", token.id,
                                  ", but in the model's vocabulary ",
                                  is_other ? "that is another piece's" : "it has another one");
    }
    set(token.id, token.text);
    is_special_[static_cast<size_t>(token.id)] = token.is_special;
  }
  decoded_ = pieces_;
  for (const AddedToken& token : added_) {  // as the text had it
    if (token.is_normalized && normalizer_) normalizer_->apply(decoded_[static_cast<size_t>(token.id)], false);
  }
  texts_.resize(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (!exists_[id] || is_special_[id]) continue;
    DecodedText text{.parts = {decoded_[id]}, .is_whole = false};
    decoder_->apply(text);
    for (const std::string& part : text.parts) texts_[id] += part;
  }
}

void HuggingFaceTokenizer::read_byte_tokens() {
  byte_ids_ = model_->byte_ids();
  if (pre_tokenizer_ && pre_tokenizer_->is_byte_level()) {
    const ByteLevelAlphabet alphabet;
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      std::string piece;
      alphabet.append_encoded(piece, std::string(1, static_cast<char>(byte)));
      const auto found = model_->ids().find(piece);
      byte_ids_[byte] = found == model_->ids().end() ? -1 : found->second;
    }
  }
  keeps_bytes_ = std::ranges::all_of(byte_ids_, [](int32_t id) { return id >= 0; });
  // Byte by byte, because some tokenizers lack those that occur in no UTF-8.
  constexpr std::string_view kNotInUtf8 = "\xC0\xC1\xF5\xF6\xF7\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF";
  for (size_t byte = 0; byte < byte_ids_.size() && !model_->has_unknown(); ++byte) {
    loses_characters_ |= byte_ids_[byte] < 0 && kNotInUtf8.find(static_cast<char>(byte)) == std::string_view::npos;
  }
}

void HuggingFaceTokenizer::make_finders() {
  std::vector<std::pair<std::string, const AddedToken*>> plain, normalized;
  for (const bool special : {true, false}) {
    for (const AddedToken& token : added_) {
      if (token.is_special != special) continue;
      std::string text = token.text;
      if (token.is_normalized && normalizer_) normalizer_->apply(text, false);
      (token.is_normalized ? normalized : plain).emplace_back(std::move(text), &token);
    }
  }
  finder_ = std::make_unique<AddedTokenFinder>(plain);
  normalized_finder_ = std::make_unique<AddedTokenFinder>(normalized);
}

class HuggingFaceTokenizer::Encoding {
 public:
  Encoding(const HuggingFaceTokenizer& tokenizer, const std::function<void(size_t)>& notify, KnownWords* known)
      : own_(tokenizer), notify_(notify), known_(known), scratch_(tokenizer.model_->make_scratch()) {
    take_piece_ = [this](const TextPiece& piece) { encode_word(piece.text); };
    is_wanted_ = [this](const AddedToken& token) { return !token.is_special || own_.settings().special_text; };
  }

  std::vector<int32_t> run(std::string_view text) {
    ids_.reserve(text.size() / 3 + 8);
    std::string replaced;
    if (!own_.keeps_bytes_ && valid_bytes(text) < text.size()) {
      replaced = with_replacements(text);
      text = replaced;
    }
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = valid_bytes(text.substr(at));
      if (bytes > 0) encode_valid(text.substr(at, bytes), at);
      at += bytes;
      if (at < text.size()) ids_.push_back(own_.byte_ids_[static_cast<uint8_t>(text[at++])]);
    }
    return std::move(ids_);
  }

 private:
  static std::string with_replacements(std::string_view text) {
    std::string replaced;
    while (!text.empty()) {
      const size_t bytes = valid_bytes(text);
      replaced += text.substr(0, bytes);
      text.remove_prefix(bytes);
      if (text.empty()) break;
      replaced += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    }
    return replaced;
  }

  void encode_valid(std::string_view text, size_t offset) {
    own_.finder_->split(text, is_wanted_, [&](size_t begin, size_t end, const AddedToken* token) {
      if (token != nullptr) {
        ids_.push_back(token->id);
        return;
      }
      done_ = offset + begin;
      end_ = offset + end;
      const bool is_first = offset == 0 && begin == 0;
      encode_plain(text.substr(begin, end - begin), {{}, is_first, offset > 0 && begin == 0});
    });
  }

  void encode_plain(std::string_view text, TextPiece place) {
    std::string normal;
    if (own_.normalizer_) {
      normal = text;
      own_.normalizer_->apply(normal, place.continues);
      text = normal;
    }
    own_.normalized_finder_->split(text, is_wanted_, [&](size_t begin, size_t end, const AddedToken* token) {
      if (token != nullptr) {
        ids_.push_back(token->id);
        return;
      }
      const TextPiece piece{text.substr(begin, end - begin), place.is_first && begin == 0,
                            place.continues && begin == 0};
      if (own_.pre_tokenizer_) {
        own_.pre_tokenizer_->split(piece, take_piece_);
      } else if (own_.cuts_at_marks_) {
        encode_at_marks(piece.text);
      } else {
        encode_word(piece.text);
      }
    });
  }

  void encode_at_marks(std::string_view text) {
    while (!text.empty()) {
      size_t end = 0;
      while (text.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
      end = std::min(text.find(kSpaceMark, end), text.size());
      encode_word(text.substr(0, end));
      text.remove_prefix(end);
    }
  }

  void encode_word(std::string_view word) {
    const auto found = known_ != nullptr ? known_->find(word) : std::nullopt;
    if (found) {
      ids_.insert(ids_.end(), found->begin(), found->end());
    } else {
      const size_t before = ids_.size();
      own_.model_->encode(word, ids_, *scratch_);
      if (known_ != nullptr) known_->add(word, std::span(ids_).subspan(before));
    }
    if (!notify_) return;
    done_ = std::min(done_ + word.size(),
                     end_);  // approximately: a normalised text has another length
    if (done_ < notified_ + kNotifyBytes) return;
    notify_(notified_ = done_);
  }

  const HuggingFaceTokenizer& own_;
  const std::function<void(size_t)>& notify_;
  KnownWords* known_;
  std::unique_ptr<TokenModel::Scratch> scratch_;
  TakePiece take_piece_;
  std::function<bool(const AddedToken&)> is_wanted_;
  std::vector<int32_t> ids_;
  size_t done_ = 0, end_ = 0,
         notified_ = 0;  // bytes of the text; end_: of the part that is being encoded
};

std::vector<int32_t> HuggingFaceTokenizer::encode(std::string_view text, const std::function<void(size_t)>& notify,
                                                  KnownWords* known) const {
  return Encoding(*this, notify, known).run(text);
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> ids) const {
  DecodedText text;
  for (const int32_t id : ids) {
    if (!is_special(id)) text.parts.push_back(decoded_[static_cast<size_t>(id)]);
  }
  if (text.parts.empty()) return "";
  decoder_->apply(text);
  std::string all;
  for (const std::string& part : text.parts) all += part;
  return all;
}

std::string HuggingFaceTokenizer::piece(int32_t id) const {
  text_of(id);
  return pieces_[static_cast<size_t>(id)];
}

}  // namespace shiftron
