// Why scores can stand for merges: if two neighbours are found in any text, they are also found on the way to the
// tokens of their join alone, because pieces only grow. That way has one step with two pieces, so a text makes a piece
// out of one pair only, whatever else the file lists, and the merge of that pair orders the piece among all others. A
// piece that does not become itself is never made. If its way ends with two pieces, llama.cpp would join these, so it
// must not know the piece.
#include "interchange/gguf_byte_fallback.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/check.h"
#include "core/foreign_text.h"
#include "interchange/gguf_tokenizer_json.h"
#include "interchange/gguf_vocabulary.h"
#include "tokenizer/hugging_face/merge_table.h"
#include "tokenizer/hugging_face/pre_tokenizer.h"
#include "tokenizer/hugging_face/read_token_model.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Type = SentencePiece::Type;
const std::string kWrittenSpace(kSpaceMark);

// What becomes of a text before its characters are joined.
struct SpaceHandling {
  bool is_normalized = false;       // by a normalizer, which added tokens may go through
  bool adds_space = false;          // in front of a text
  bool adds_after_tokens = false;   // also after added tokens
  bool adds_only_if_none = false;   // unless there is one
  bool cuts_before_spaces = false;  // so that no piece has one inside
};

void add_normalizers(const JsonPart& normalizer, std::vector<JsonPart>& steps) {
  if (normalizer.is_null()) return;
  if (normalizer["type"].text() != "Sequence") return steps.push_back(normalizer);
  for (const JsonPart& step : normalizer["normalizers"].list()) add_normalizers(step, steps);
}

bool marks_spaces(const JsonPart& replace) {
  return replace["pattern"]["String"].text_or("") == " " && replace["content"].text() == kWrittenSpace;
}

SpaceHandling read_normalizer_steps(const JsonPart& normalizer) {
  std::vector<JsonPart> steps;
  add_normalizers(normalizer, steps);
  SpaceHandling handling;
  for (const JsonPart& step : steps) {
    const std::string type = step["type"].text();
    const std::string front = type == "Prepend" ? step["prepend"].text() : "";
    const bool adds_space = front == kWrittenSpace || (front == " " && !handling.is_normalized);
    if (adds_space && !handling.adds_space) {
      handling.adds_space = handling.adds_after_tokens = true;
    } else if (type == "Replace" && marks_spaces(step)) {
      handling.is_normalized = true;
    } else {
      step.refuse("llama.cpp writes U+2581 for spaces and can put one in front of a text; it does not do this ",
                  printable(type));
    }
  }
  return handling;
}

// The pre-tokenizer's words of a text with a space.
std::vector<std::string> example_words(const PreTokenizer& pre_tokenizer, bool is_first) {
  std::vector<std::string> words;
  pre_tokenizer.split({"a b", is_first, false}, [&](const TextPiece& word) { words.emplace_back(word.text); });
  return words;
}

SpaceHandling read_metaspace(const JsonPart& part) {
  if (part["replacement"].text() != kWrittenSpace)
    part["replacement"].refuse("is not U+2581, which llama.cpp writes for spaces");
  const std::unique_ptr<PreTokenizer> pre_tokenizer = read_pre_tokenizer(part);
  const std::vector<std::string> first = example_words(*pre_tokenizer, true);
  const bool adds_space = first[0].starts_with(kWrittenSpace);
  return {.adds_space = adds_space,
          .adds_after_tokens = example_words(*pre_tokenizer, false)[0].starts_with(kWrittenSpace),
          .adds_only_if_none = adds_space,
          .cuts_before_spaces = first.size() > 1};
}

// Of a text without spaces, this cuts nothing.
bool cuts_at_spaces(const JsonPart& split) {
  return split["pattern"]["String"].text_or("") == " " && !split["invert"].boolean_or(false);
}

SpaceHandling read_space_handling(const JsonPart& file) {
  const JsonPart normalizer = file["normalizer"], part = file["pre_tokenizer"];
  const std::string type = part.is_null() ? "" : part["type"].text();
  if (type == "Metaspace") {
    if (!normalizer.is_null()) normalizer.refuse("changes texts before the pre-tokenizer Metaspace does");
    return read_metaspace(part);
  }
  const SpaceHandling handling = read_normalizer_steps(normalizer);
  if (!handling.is_normalized) normalizer.refuse("does not write U+2581 for spaces, as llama.cpp does");
  if (!part.is_null() && (type != "Split" || !cuts_at_spaces(part))) {
    part.refuse("llama.cpp does not cut such a text into words, as this ", printable(type), " does");
  }
  return handling;
}

// The merges of tokenizer.json, applied to one text at a time.
class MergesInFile {
 public:
  struct Outcome {
    size_t parts = 0;
    uint32_t last = 0;  // position in the file of the last merge, if there was one
  };

  // is_hidden: whether no text becomes the token.
  template <typename IsHidden>
  MergesInFile(const JsonPart& part, const TokenModel& model, bool cuts_before_spaces, const IsHidden& is_hidden)
      : merges_(part.value().size()) {
    for (const auto& [piece, id] : model.ids()) {
      if (!is_hidden(id)) ids_[piece] = id;
    }
    uint32_t place = 0;
    for (const nlohmann::json& merge : part.value()) {
      const auto [left, right] = merge_pieces(merge);
      const int32_t first = model.ids().at(left), second = model.ids().at(right);
      for (const int32_t id : {first, second}) {
        if (std::ranges::find(model.byte_ids(), id) == model.byte_ids().end()) continue;
        part.refuse("entry ", place, " joins the token of a byte, \"", printable(id == first ? left : right),
                    "\", which llama.cpp never does");
      }
      const auto joined = ids_.find(left + right);
      const bool is_cut =
          cuts_before_spaces && joined != ids_.end() && joined->first.find(kWrittenSpace, 1) != kWrittenSpace.npos;
      if (joined != ids_.end() && !is_cut) merges_.set(first, second, {place, joined->second});
      ++place;
    }
  }

  bool has(const std::string& piece) const { return ids_.contains(piece); }

  Outcome join(const std::string& text) const {
    std::map<size_t, int32_t> symbols;  // by their place; -1: a character without a piece
    for (size_t at = 0; at < text.size();) {
      const size_t length = utf8_length(std::string_view(text).substr(at));
      const auto found = ids_.find(text.substr(at, length));
      symbols[at] = found == ids_.end() ? -1 : found->second;
      at += length;
    }
    using Symbol = std::map<size_t, int32_t>::iterator;
    std::set<std::pair<uint32_t, size_t>> next;  // merges by their place in the file and in the text
    const auto merge_at = [&](Symbol left) {
      const auto right = std::next(left);
      return right == symbols.end() ? MergeTable::Merge{} : merges_.find(left->second, right->second);
    };
    const auto add = [&](Symbol left) {
      if (const auto merge = merge_at(left); merge.id >= 0) next.emplace(merge.rank, left->first);
    };
    const auto remove = [&](Symbol left) { next.erase({merge_at(left).rank, left->first}); };
    for (auto symbol = symbols.begin(); symbol != symbols.end(); ++symbol) add(symbol);
    uint32_t last = 0;
    while (!next.empty()) {
      last = next.begin()->first;
      const auto left = symbols.find(next.begin()->second), right = std::next(left);
      const int32_t joined = merge_at(left).id;
      const bool is_begin = left == symbols.begin();
      if (!is_begin) remove(std::prev(left));
      remove(left);
      remove(right);
      left->second = joined;
      symbols.erase(right);
      if (!is_begin) add(std::prev(left));
      add(left);
    }
    return {symbols.size(), last};
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;  // of pieces that texts may become
  MergeTable merges_;
};

class ByteFallbackReader {
 public:
  ByteFallbackReader(const Tokenizer& tokenizer, const JsonPart& file)
      : tokenizer_(tokenizer),
        file_(file),
        model_(read_token_model(file["model"], {})),
        added_(read_added_tokens(file["added_tokens"])),
        spaces_(read_space_handling(file)),
        merges_(file["model"]["merges"], *model_, spaces_.cuts_before_spaces,
                [&](int32_t id) { return tokenizer.is_special(id) && !tokenizer.settings().special_text; }) {}

  ByteFallbackVocabulary read() {
    if (file_["model"]["ignore_merges"].boolean_or(false)) {
      file_["model"]["ignore_merges"].refuse("is true, but llama.cpp joins the characters of every word");
    }
    require_bytes();
    add_pieces();
    set_scores();
    check_added_tokens();
    result_.add_space_prefix = spaces_.adds_space;
    if (spaces_.adds_only_if_none) {
      add_difference(result_.note, "it puts a space in front of what begins with one, too");
    }
    if (spaces_.adds_space && !spaces_.adds_after_tokens && finds_tokens_) {
      add_difference(result_.note, "it puts a space after added tokens, too");
    }
    if (has_nul_)
      add_difference(result_.note, "it reads names of tokens up to a NUL, so texts with this character get other ids");
    if (!byte_name_.empty()) {
      add_difference(result_.note,
                     "it takes some names of bytes in a text, like " + printable(byte_name_) + ", for these bytes");
    }
    return std::move(result_);
  }

 private:
  void require_bytes() const {
    const auto missing = std::ranges::find(model_->byte_ids(), -1);
    if (missing == model_->byte_ids().end()) return;
    file_["model"]["vocab"].refuse("has no token for byte ", missing - model_->byte_ids().begin(),
                                   ", so llama.cpp would lose text");
  }

  int32_t unknown_token() const {
    const JsonPart part = file_["model"]["unk_token"];
    if (part.is_null()) part.refuse("is missing, but llama.cpp requires an unknown token");
    const int32_t id = model_->ids().at(part.text());
    if (!tokenizer_.is_special(id)) part.refuse("is not a special token, so texts could become the unknown token");
    return id;
  }

  void add_pieces() {
    result_.model.algorithm = SentencePieceAlgorithm::bpe;
    result_.model.name = tokenizer_.name();
    std::vector<Type> types(static_cast<size_t>(tokenizer_.vocab_size()), Type::normal);
    for (const AddedToken& token : added_) {
      types[static_cast<size_t>(token.id)] = tokenizer_.is_special(token.id) ? Type::control : Type::user_defined;
    }
    for (const int32_t id : model_->byte_ids()) types[static_cast<size_t>(id)] = Type::byte;
    types[static_cast<size_t>(unknown_token())] = Type::unknown;
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      std::string name = tokenizer_.piece(id);
      const bool is_there = !name.empty();  // some ids may have no token
      result_.model.pieces.push_back({std::move(name), 0, is_there ? types[static_cast<size_t>(id)] : Type::unused});
    }
  }

  // Whether llama.cpp would find a name in texts that do not become its token.
  bool is_mistaken(const std::string& name, const MergesInFile::Outcome& outcome) const {
    return outcome.parts == 2 || (utf8_length(name) == name.size() && !merges_.has(name));
  }

  void set_scores() {
    std::map<uint32_t, SentencePiece*> by_merge;
    for (SentencePiece& piece : result_.model.pieces) {
      if (piece.text.empty()) continue;
      if (has_nul(piece.text)) {
        has_nul_ = has_nul_ || piece.type == Type::normal;
        if (piece.type == Type::normal) piece.type = Type::unused;
        continue;
      }
      const MergesInFile::Outcome outcome = merges_.join(piece.text);
      if (outcome.parts == 1 && utf8_length(piece.text) < piece.text.size()) by_merge[outcome.last] = &piece;
      if (!is_mistaken(piece.text, outcome)) continue;
      if (piece.type == Type::normal) piece.type = Type::unused;
      if (piece.type == Type::byte && byte_name_.empty()) byte_name_ = piece.text;
    }
    double score = 0;
    for (const auto& [place, piece] : by_merge) piece->score = --score;
  }

  void check_added_tokens() {
    const JsonPart part = file_["added_tokens"];
    for (const AddedToken& token : added_) {
      if (!is_found_in_texts(token, tokenizer_)) continue;
      finds_tokens_ = true;
      require_plain_search(token, tokenizer_, part);
      if (result_.model.pieces[static_cast<size_t>(token.id)].type == Type::byte) {
        part.refuse("\"", printable(token.text), "\" is the token of a byte, which llama.cpp does not find in texts");
      }
      if (has_nul(token.text))
        part.refuse("\"", printable(token.text), "\" has the character NUL, where names end in llama.cpp");
      const bool has_mark = token.text.find(kWrittenSpace) != token.text.npos;
      const bool changes = spaces_.adds_space || has_mark || token.text.find(' ') != token.text.npos;
      if (token.is_normalized && spaces_.is_normalized && changes) {
        part.refuse("\"", printable(token.text), "\" is \"normalized\", but llama.cpp finds added tokens before it ",
                    "changes spaces");
      }
      if (has_mark && is_mistaken(token.text, merges_.join(token.text))) {
        part.refuse("\"", printable(token.text), "\" is found with U+2581 only, but llama.cpp would find it with a ",
                    "space, too");
      }
    }
  }

  const Tokenizer& tokenizer_;
  const JsonPart& file_;
  std::unique_ptr<const TokenModel> model_;
  std::vector<AddedToken> added_;
  SpaceHandling spaces_;
  MergesInFile merges_;
  bool finds_tokens_ = false;
  bool has_nul_ = false;   // in pieces of text
  std::string byte_name_;  // one that pieces join to
  ByteFallbackVocabulary result_;
};

bool is_byte_fallback(const JsonPart& file) {
  const JsonPart model = file["model"];
  if (model["type"].text_or("BPE") != "BPE" || !model["byte_fallback"].boolean_or(false)) return false;
  const std::unique_ptr<PreTokenizer> pre_tokenizer = read_pre_tokenizer(file["pre_tokenizer"]);
  return pre_tokenizer == nullptr || !pre_tokenizer->is_byte_level();
}

}  // namespace

std::optional<ByteFallbackVocabulary> read_byte_fallback(const Tokenizer& tokenizer) {
  const nlohmann::json content = nlohmann::json::parse(tokenizer.file().bytes);
  const JsonPart file(content, tokenizer.name());
  if (!is_byte_fallback(file)) return std::nullopt;
  return ByteFallbackReader(tokenizer, file).read();
}

}  // namespace shiftron
