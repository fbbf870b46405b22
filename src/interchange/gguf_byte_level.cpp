// Tokens keep the alphabet of the file, in which each byte is a character; added tokens are written as they are found.
#include "interchange/gguf_byte_level.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/check.h"
#include "core/foreign_text.h"
#include "interchange/gguf_pre_tokenizer.h"
#include "interchange/gguf_tokenizer_json.h"
#include "tokenizer/hugging_face/added_tokens.h"
#include "tokenizer/hugging_face/byte_level.h"
#include "tokenizer/hugging_face/pre_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"

namespace shiftron {
namespace {

using Type = SentencePiece::Type;

// pre_tokenizer: the file's; null if it has none.
void require_byte_level(const JsonPart& file, const PreTokenizer* pre_tokenizer) {
  const std::string type = file["model"]["type"].text_or("BPE");
  if (type != "BPE" || pre_tokenizer == nullptr || !pre_tokenizer->is_byte_level()) {
    file["model"].refuse(
        "is a ", printable(type),
        " model that is not byte-level; of tokenizer.json, GGUF export supports byte-level BPE, and BPE with "
        "\"byte_fallback\": true");
  }
}

bool is_form_c(const JsonPart& normalizer) {
  const std::string type = normalizer["type"].text();
  if (type != "Sequence") return type == "NFC";
  return std::ranges::all_of(normalizer["normalizers"].list(), is_form_c);
}

std::string note_of_normalizer(const JsonPart& normalizer) {
  if (normalizer.is_null()) return "";
  if (!is_form_c(normalizer)) normalizer.refuse("llama.cpp normalises no text; only NFC is exported, with a note");
  return "it does not normalise text (NFC), so text in another form gets other ids";
}

class ByteLevelVocabulary {
 public:
  ByteLevelVocabulary(const Tokenizer& tokenizer, const JsonPart& file)
      : tokenizer_(tokenizer),
        file_(file),
        pre_tokenizer_(read_pre_tokenizer(file["pre_tokenizer"])),
        added_(read_added_tokens(file["added_tokens"])) {}

  GgufTokenizer make() {
    require_byte_level(file_, pre_tokenizer_.get());
    const GgufPreTokenizer words = gguf_pre_tokenizer(file_);
    result_.model = "gpt2";
    result_.pre = words.name;
    result_.end_of_document = static_cast<uint32_t>(tokenizer_.end_of_document());
    const int32_t beginning = tokenizer_.beginning_of_document();
    if (beginning >= 0) result_.beginning_of_document = static_cast<uint32_t>(beginning);
    add_difference(result_.note, words.difference);
    add_difference(result_.note, note_of_normalizer(file_["normalizer"]));
    add_pieces();
    require_bytes();
    add_merges();
    return std::move(result_);
  }

 private:
  void add_pieces() {
    std::map<int32_t, const AddedToken*> added;
    for (const AddedToken& token : added_) {
      require_plain_search(token, tokenizer_, file_["added_tokens"]);
      added[token.id] = &token;
    }
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      const std::string& name = tokenizer_.piece(id);
      const auto found = added.find(id);
      const bool is_special = tokenizer_.is_special(id);
      if (found == added.end() && is_special) {
        add(reserved("unused", id), Type::unused);  // no token has this id
      } else if (name.empty() || (found != added.end() && is_special && is_found_in_texts(name))) {
        add(reserved("control", id), Type::control);
      } else {
        add(name, found == added.end() ? Type::normal : is_special ? Type::control : Type::user_defined);
      }
      if (is_special) special_.insert(name);
    }
  }

  void add(std::string name, Type type) {
    if (!names_.insert(name).second) {
      throw_bad_input(tokenizer_.name(), ": token ", result_.pieces.size(), " \"", printable(name),
                      "\" appears twice, which llama.cpp does not accept");
    }
    result_.pieces.push_back(std::move(name));
    result_.types.push_back(static_cast<int32_t>(type));
  }

  // llama.cpp looks up single bytes, and with ignore_merges whole words, among tokens of any type.
  bool is_found_in_texts(const std::string& name) const {
    if (tokenizer_.settings().special_text) return false;
    const auto bytes = ByteLevelAlphabet().decoded(name);
    if (bytes && bytes->size() == 1) return true;
    if (!file_["model"]["ignore_merges"].boolean_or(false)) return false;
    size_t words = 0;
    pre_tokenizer_->split({name, true, false}, [&](const TextPiece&) { ++words; });
    return words == 1;
  }

  // No word has a space in the alphabet of bytes.
  static std::string reserved(const char* what, int32_t id) {
    return std::string("[") + what + " " + std::to_string(id) + "]";
  }

  void require_bytes() const {
    const ByteLevelAlphabet alphabet;
    for (int byte = 0; byte < 256; ++byte) {
      std::string piece;
      alphabet.append_encoded(piece, std::string(1, static_cast<char>(byte)));
      if (!names_.contains(piece)) {
        throw_bad_input(tokenizer_.name(), " has no token for byte ", byte, ", so llama.cpp would lose text");
      }
    }
  }

  // A later merge of a pair replaces earlier ones. Merges to special tokens are left out: no text becomes these.
  void add_merges() {
    std::unordered_set<std::string> seen;
    const nlohmann::json& list = file_["model"]["merges"].value();
    for (auto merge = list.rbegin(); merge != list.rend(); ++merge) {
      const auto [left, right] = merge_pieces(*merge);
      const std::string text = left + " " + right;
      if (std::ranges::count(text, ' ') != 1) continue;  // a piece with a space: no text becomes it
      const bool is_hidden = special_.contains(left + right) && !tokenizer_.settings().special_text;
      if (!is_hidden && seen.insert(text).second) result_.merges.push_back(text);
    }
    std::ranges::reverse(result_.merges);
  }

  const Tokenizer& tokenizer_;
  const JsonPart& file_;
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::vector<AddedToken> added_;
  std::unordered_set<std::string> names_, special_;
  GgufTokenizer result_;
};

}  // namespace

GgufTokenizer gguf_byte_level(const Tokenizer& tokenizer) {
  const nlohmann::json content = nlohmann::json::parse(tokenizer.file().bytes);
  const JsonPart file(content, tokenizer.name());
  return ByteLevelVocabulary(tokenizer, file).make();
}

}  // namespace shiftron
