// Training is repeatable, takes all of the text into account, and says what is wrong.
#include "data/tokenizer_training.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "fixture.h"
#include "scratch.h"
#include "tokenizer/keeps_text.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron {
namespace {

TEST(TokenizerTraining, TheSpaceHasAToken) {
  const Scratch scratch;
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", "hello\nworld\nthere\nhello\nworld\n")};
  training.vocab = 268;
  for (const std::string kind : {"bpe", "unigram"}) {
    training.kind = kind;
    const SentencePieceTokenizer trained(train_tokenizer(training), "small");
    EXPECT_EQ(trained.piece(trained.encode(" ").at(0)), "\xE2\x96\x81") << kind;
    expect_kept(trained, " a b  ");
  }
}

TEST(TokenizerTraining, IsRepeatable) {
  const Scratch scratch;
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", example_text(400))};
  training.vocab = 330;
  EXPECT_EQ(train_tokenizer(training), example_model());
}

TEST(TokenizerTraining, TextWithControlNames) {
  const Scratch scratch;
  std::string text = example_text(50);
  for (int i = 0; i < 500; ++i) text += "</s>\n<unk>\n<0x41>\n<s> </s> <unk> <0x41> \xE2\x96\x81 \xFF bad\n";
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", text)};
  for (const std::string kind : {"bpe", "unigram"}) {
    training.kind = kind;
    training.vocab = kind == "bpe" ? 380 : 330;
    const SentencePieceTokenizer trained(train_tokenizer(training), kind);
    expect_kept(trained, text);
    expect_kept(trained, "</s>");
  }
}

TEST(TokenizerTraining, ReadsJsonLines) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += "{\"body\": \"token window number " + std::to_string(i) + "\"}\n";
  TokenizerTraining training;
  training.files = {scratch.write("text.jsonl", lines)};
  training.vocab = 300;
  training.text_key = "body";
  const SentencePieceTokenizer trained(train_tokenizer(training), "trained");
  EXPECT_LT(trained.encode("token window").size(), 5u);
}

TEST(TokenizerTraining, SamplesAreOfTheText) {
  const Scratch scratch;
  const auto repeated = [](const std::string& word, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += word + " ";
    return text;
  };
  const std::string first = repeated("gradient", 200000), second = repeated("document", 200000);
  TokenizerTraining training;
  training.vocab = 288;
  training.sample_bytes = 50000;
  const auto expect_both = [&](const std::string& what) {
    const SentencePieceTokenizer trained(train_tokenizer(training), "sampled");
    EXPECT_EQ(trained.encode(" gradient").size(), 1u) << what;
    EXPECT_EQ(trained.encode(" document").size(), 1u) << what;
  };
  training.files = {scratch.write("line.txt", first + second)};
  expect_both("one line");
  training.files = {scratch.write("two.jsonl", "{\"text\": \"" + first + "\"}\n{\"text\": \"" + second + "\"}\n")};
  expect_both("two documents");

  // What would fit is taken as a whole, whatever else the lines hold.
  std::string lines, texts;
  for (int i = 0; i < 400; ++i) {
    const std::string text = "token number " + std::to_string(i * 7919);
    lines += "{\"text\": \"" + text + "\", \"more\": \"" + std::string(1000, 'x') + "\"}\n";
    texts += text + "\n";
  }
  training.files = {scratch.write("texts.txt", texts)};
  const std::string all = train_tokenizer(training);
  training.files = {scratch.write("lines.jsonl", lines)};
  EXPECT_EQ(train_tokenizer(training), all);
  training.sample_bytes = 1000;
  EXPECT_NE(train_tokenizer(training), all);
  training.sample_bytes = 5;
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "raise --sample-bytes");
}

// The ends of lines are text for this kind, in a text file too; long lines are cut before a word.
TEST(TokenizerTraining, ByteLevelTokenizersLearnLineEnds) {
  const Scratch scratch;
  std::string lines, line;
  for (int i = 0; i < 9000; ++i) lines += "  gradient;\n\n";
  for (int i = 0; i < 140000; ++i) line += " gradient";
  TokenizerTraining training;
  training.kind = "byte-bpe";
  training.vocab = 267;
  const auto ids_of = [&](const std::string& text) {
    return make_tokenizer({"tokenizer.json", train_tokenizer(training)}, {.end_of_document = 0}, "T")->encode(text);
  };
  training.files = {scratch.write("lines.txt", lines)};
  EXPECT_EQ(ids_of(";\n\n").size(), 1u);
  training.files = {scratch.write("line.jsonl", R"({"text": ")" + line + "\"}\n")};
  training.vocab = 265;
  EXPECT_EQ(ids_of(" gradient").size(), 1u);
  training.vocab = 266;
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "at most 265");  // no part of a word was learned
}

TEST(TokenizerTraining, FaultsSayWhatToDo) {
  const Scratch scratch;
  TokenizerTraining training;
  training.vocab = 4096;
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "--input");
  training.files = {scratch / "missing.txt"};
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "missing.txt: No such file");
  training.files = {scratch.write("empty.txt", "")};
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "no text to train the tokenizer on");
  training.files = {scratch.write("text.txt", "the tensor learns slowly\n")};
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "vocab 4096 is larger than this text supports: at most");
  training.vocab = 262;
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input,
               "vocab 262 is too small for the characters of this text");
  training.vocab = 100;
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "vocab 100: must be between 260");
  training.vocab = 300;
  training.kind = "words";
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "use bpe, unigram or byte-bpe");
  training.kind = "bpe";
  training.special_tokens = {"<a>"};
  EXPECT_ERROR(train_tokenizer(training), ExitCode::bad_input, "special tokens can be added to");
}

}  // namespace
}  // namespace shiftron
