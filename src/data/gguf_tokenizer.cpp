// Pieces out of a SentencePiece model, with U+2581 for spaces as there.
#include "data/gguf_tokenizer.h"

#include <set>

#include "core/check.h"
#include "data/sentencepiece_model.h"
#include "data/utf8.h"

namespace shiftron {
namespace {

using Type = SentencePiece::Type;

// Whether joining neighbours, each time to a piece, makes `text` out of its characters: what llama.cpp does, to pieces
// of any type.
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

}  // namespace

GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer, int64_t vocab) {
  const SentencePieceModel model = read_sentencepiece_model(tokenizer);
  const bool is_unigram = model.algorithm == SentencePieceModel::Algorithm::unigram;
  GgufTokenizer result{.model = is_unigram ? "t5" : "llama",
                       .pieces = {},
                       .scores = {},
                       .types = {},
                       .end_of_document = static_cast<uint32_t>(tokenizer.end_of_document()),
                       .note = {}};
  CHECK(vocab >= tokenizer.vocab_size(), vocab, " tokens of ", tokenizer.vocab_size());
  if (is_unigram) {
    result.note =
        "llama.cpp writes characters without a piece of their own as the unknown token, where this program "
        "writes their bytes";
  }
  std::set<std::string> names;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) names.insert(tokenizer.piece(id));
  if (static_cast<int64_t>(names.size()) != tokenizer.vocab_size()) {
    throw_bad_input(
        "the tokenizer's model has a piece twice, which llama.cpp refuses; make one with `shiftron tokenizer "
        "train`");
  }
  const auto add = [&](std::string name, double score, Type type) {
    result.pieces.push_back(std::move(name));
    result.scores.push_back(static_cast<float>(score));
    result.types.push_back(static_cast<int32_t>(type));
  };
  // A name that no text becomes: llama.cpp writes U+2581 for the spaces of texts.
  const auto reserved = [&](const char* what, int64_t id) {
    std::string name = std::string("[") + what + " " + std::to_string(id) + "]";
    while (names.contains(name)) name += "]";
    return name;
  };
  bool has_unknown = false;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const SentencePiece& piece = model.pieces[static_cast<size_t>(id)];
    const bool is_control = piece.type == Type::control || piece.type == Type::unknown;
    const std::string name = tokenizer.piece(id);
    if (piece.type == Type::unknown && !has_unknown) result.unknown = static_cast<uint32_t>(id);
    has_unknown = has_unknown || piece.type == Type::unknown;
    add(is_control && is_joined(name, names) ? reserved("control", id) : name, piece.score, piece.type);
  }
  if (!has_unknown) throw_bad_input("the tokenizer's model has no unknown piece");
  for (int64_t id = tokenizer.vocab_size(); id < vocab; ++id) add(reserved("unused", id), 0, Type::control);
  return result;
}

}  // namespace shiftron
