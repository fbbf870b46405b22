// Takes the pieces from a SentencePiece model, or what gguf_byte_fallback.cpp makes of tokenizer.json, with U+2581 for
// spaces. Byte-level BPE is in gguf_byte_level.cpp.
#include "interchange/gguf_tokenizer.h"

#include <algorithm>
#include <set>

#include "core/check.h"
#include "interchange/gguf_byte_fallback.h"
#include "interchange/gguf_byte_level.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Type = SentencePiece::Type;

// Whether joining neighbours, each time to a piece, can make `text` out of its characters. llama.cpp joins this way, to
// pieces of any type.
bool is_joined(const std::string& text, const std::set<std::string>& pieces) {
  std::vector<size_t> cuts = {0};  // between characters
  while (cuts.back() < text.size())
    cuts.push_back(cuts.back() + std::max<size_t>(1, utf8_length(text.substr(cuts.back()))));
  const size_t count = cuts.size() - 1;
  std::vector<std::vector<bool>> made(count + 1, std::vector<bool>(count + 1));
  for (size_t length = 1; length <= count; ++length) {
    for (size_t begin = 0; begin + length <= count; ++begin) {
      const size_t end = begin + length;
      const bool is_piece = length == count || pieces.contains(text.substr(cuts[begin], cuts[end] - cuts[begin]));
      bool joins = length == 1;
      for (size_t cut = begin + 1; is_piece && cut < end; ++cut) joins = joins || (made[begin][cut] && made[cut][end]);
      made[begin][end] = joins;
    }
  }
  return made[0][count];
}

bool is_user_defined(const SentencePieceModel& model, std::string_view text) {
  return std::ranges::any_of(
      model.pieces, [&](const SentencePiece& piece) { return piece.type == Type::user_defined && piece.text == text; });
}

// Whether no text becomes the name in llama.cpp, as it writes U+2581 for spaces and finds user-defined pieces first.
bool is_never_joined(const std::string& name, bool newline_is_found) {
  if (has_nul(name)) return false;
  return name.find(' ') != name.npos || (newline_is_found && name.find('\n') != name.npos);
}

// User-defined pieces are named as they occur in texts, because they are searched for there.
std::vector<std::string> names_of(const SentencePieceModel& model, const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const bool is_found = model.pieces[id].type == Type::user_defined;
    names.push_back(is_found ? model.pieces[id].text : tokenizer.piece(static_cast<int32_t>(id)));
  }
  return names;
}

GgufTokenizer gguf_of_pieces(const SentencePieceModel& model, const Tokenizer& tokenizer) {
  const bool is_unigram = model.algorithm == SentencePieceAlgorithm::unigram;
  GgufTokenizer result{.model = is_unigram ? "t5" : "llama",
                       .end_of_document = static_cast<uint32_t>(tokenizer.end_of_document())};
  const int32_t beginning = tokenizer.beginning_of_document();
  if (beginning >= 0) result.beginning_of_document = static_cast<uint32_t>(beginning);
  if (is_unigram) {
    result.note =
        "llama.cpp encodes characters that have no piece as the unknown token; this program encodes their bytes";
  }
  const std::vector<std::string> own = names_of(model, tokenizer);
  std::set<std::string> names;
  for (size_t id = 0; id < own.size(); ++id) {
    if (model.pieces[id].type == Type::unused || names.insert(own[id]).second) continue;
    throw_bad_input(model.name, ": piece ", id, " \"", printable(own[id]),
                    "\" appears twice, which llama.cpp does not accept");
  }
  const auto add = [&](std::string name, double score, Type type) {
    result.pieces.push_back(std::move(name));
    result.scores.push_back(static_cast<float>(score));
    result.types.push_back(static_cast<int32_t>(type));
  };
  // A name that no text becomes: llama.cpp writes U+2581 for the spaces of texts, and this name has a space.
  const auto reserved = [&](const char* what, int64_t id) {
    std::string name = std::string("[") + what + " " + std::to_string(id) + "]";
    while (names.contains(name)) name += "]";
    return name;
  };
  const bool newline_is_found = is_user_defined(model, "\n");
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const SentencePiece& piece = model.pieces[static_cast<size_t>(id)];
    const std::string& name = own[static_cast<size_t>(id)];
    const bool is_control = piece.type == Type::control || piece.type == Type::unknown;
    if (piece.type == Type::unknown && !result.unknown) result.unknown = static_cast<uint32_t>(id);
    if (piece.type == Type::unused) {
      const bool stays = is_never_joined(name, newline_is_found) && names.insert(name).second;
      add(stays ? name : reserved("unused", id), piece.score, stays ? Type::normal : Type::control);
    } else {
      const bool is_hidden = is_control && !tokenizer.settings().special_text;
      const bool is_renamed = is_hidden && (is_joined(name, names) || has_nul(name));
      add(is_renamed ? reserved("control", id) : name, piece.score, piece.type);
    }
  }
  if (!result.unknown) throw_bad_input(model.name, " has no unknown piece, which llama.cpp requires");
  return result;
}

}  // namespace

GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer) {
  if (tokenizer.file().name != kHuggingFaceFile) return gguf_of_pieces(read_sentencepiece_model(tokenizer), tokenizer);
  const auto found = read_byte_fallback(tokenizer);
  if (!found) return gguf_byte_level(tokenizer);
  GgufTokenizer result = gguf_of_pieces(found->model, tokenizer);
  result.add_space_prefix = found->add_space_prefix;
  result.note = found->note;
  return result;
}

}  // namespace shiftron
