// What a GGUF file says of a tokenizer. tests/interchange/check_gguf.py checks that llama.cpp then gives the same ids.
#include "interchange/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/fixture.h"
#include "expect_error.h"
#include "interchange/llama_cpp_ids.h"

namespace shiftron {
namespace {

using ::testing::HasSubstr;

TEST(GgufTokenizer, NamesEveryPieceAsTheModelDoes) {
  for (const std::string kind : {"bpe", "unigram"}) {
    const SentencePieceTokenizer tokenizer(trained_model(400, 300, kind), kind);
    const GgufTokenizer found = gguf_tokenizer(tokenizer);
    EXPECT_EQ(found.model, kind == "bpe" ? "llama" : "t5");
    EXPECT_EQ(found.note.empty(), kind == "bpe");
    const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
    ASSERT_EQ(found.pieces.size(), vocab);
    ASSERT_EQ(found.scores.size(), vocab);
    ASSERT_EQ(found.types.size(), vocab);
    std::map<int32_t, int> types;
    bool scored = false;
    for (size_t id = 0; id < vocab; ++id) {
      const auto token = static_cast<int32_t>(id);
      EXPECT_EQ(found.pieces[id], tokenizer.piece(token));
      const bool is_byte = found.pieces[id].starts_with("<0x");
      const int32_t type = is_byte                          ? 6
                           : found.pieces[id] == "\n"       ? 4
                           : found.pieces[id] == "<unk>"    ? 2
                           : tokenizer.bytes_of(token) == 0 ? 3
                                                            : 1;
      EXPECT_EQ(found.types[id], type) << found.pieces[id];
      ++types[type];
      scored = scored || (type == 1 && found.scores[id] < -1);
    }
    EXPECT_TRUE(scored);
    EXPECT_EQ(types[6], 256);
    EXPECT_EQ(types[4], 1);
    EXPECT_EQ(found.end_of_document, static_cast<uint32_t>(tokenizer.end_of_document()));
    EXPECT_EQ(found.pieces[found.unknown.value()], "<unk>");
  }
}

TEST(GgufTokenizer, LlamaCppJoinsPiecesInTheOrderOfTheirScores) {
  const SentencePieceTokenizer tokenizer(trained_model(400, 330, "bpe"), "bpe");
  const GgufTokenizer entries = gguf_tokenizer(tokenizer);
  const LlamaCppVocabulary vocabulary(entries);
  for (const std::string text :
       {"", " ", "the tensor learns slowly", "  a\n\nthe  keys\n", "</s> <unk>", "\xC3\xA9\xE6\x97\xA5"})
    EXPECT_EQ(vocabulary.encode(text), tokenizer.encode(text)) << text;
}

// A model whose pieces join to "</s>" would make the end of a document out of text. SentencePiece joins no letters to
// marks, so one such piece is written into a model of another program's here.
TEST(GgufTokenizer, ControlTokensCannotBeJoinedOutOfText) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a bb </\n" + std::string(static_cast<size_t>(i % 26), 'a') + "\n";
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", text)};
  training.vocab = 270;
  std::string model = train_tokenizer(training);
  const std::string before = std::string("\x0A\x02") + "bb", after = std::string("\x0A\x02") + "s>";
  EXPECT_EQ(gguf_tokenizer(SentencePieceTokenizer(model, "trained")).pieces[1], "</s>");
  const size_t at = model.find(before);
  ASSERT_NE(at, model.npos);
  model.replace(at, before.size(), after);
  const SentencePieceTokenizer tokenizer(model, "joined");
  const GgufTokenizer found = gguf_tokenizer(tokenizer);
  ASSERT_EQ(std::ranges::count(found.pieces, "</") + std::ranges::count(found.pieces, "s>"), 2);
  EXPECT_EQ(found.end_of_document, 1u);
  EXPECT_EQ(found.pieces[1], "[control 1]");
  EXPECT_EQ(found.types[1], 3);
}

// llama.cpp looks for user-defined pieces in texts as they are, and for all others among those with U+2581 for spaces.
TEST(GgufTokenizer, PiecesThatNoTextBecomesAreNotFoundInTexts) {
  for (const std::string kind : {"bpe", "unigram"}) {
    const std::string model = trained_model(400, 300, kind) + piece_field("\r\n", kUserDefined) +
                              piece_field("of it", kUserDefined) +
                              piece_field("\xE2\x96\x81\xE2\x96\x81", kUserDefined);
    const SentencePieceTokenizer tokenizer(model, "changed");
    const auto first = static_cast<size_t>(tokenizer.vocab_size() - 3);
    const GgufTokenizer found = gguf_tokenizer(tokenizer);
    EXPECT_EQ(found.pieces[first], "\r\n");  // "\n" is found before
    EXPECT_EQ(found.types[first], kNormal);
    EXPECT_EQ(found.pieces[first + 1], "of it");
    EXPECT_EQ(found.types[first + 1], kNormal);
    EXPECT_EQ(found.pieces[first + 2], "  ");
    EXPECT_EQ(found.types[first + 2], kUserDefined);
  }
}

TEST(GgufTokenizer, UnusedPiecesAreNamesThatNoTextBecomes) {
  const std::string model =
      trained_model(400, 300, "unigram") + piece_field("the the", kUnused) + piece_field("Q", kUnused);
  const GgufTokenizer found = gguf_tokenizer(SentencePieceTokenizer(model, "changed"));
  EXPECT_EQ(found.types[300], kNormal);  // with a space, which no text has there
  EXPECT_EQ(found.pieces[301], "[unused 301]");
  EXPECT_EQ(found.types[301], kControl);
}

TEST(GgufTokenizer, FaultsNameTheFile) {
  const std::string model = trained_model(400, 300, "bpe");
  EXPECT_ERROR(gguf_tokenizer(SentencePieceTokenizer(model + "\x12\x02\x18\x04", "dir/x.model")), ExitCode::bad_input,
               "dir/x.model is a SentencePiece model of type char");
}

}  // namespace
}  // namespace shiftron
