// Training of byte-level tokenizers. tests/tokenizer/check_training.py compares larger texts with the package
// `tokenizers`.
#include "tokenizer/byte_pair_training.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

const std::string kText =
    "the theme: then them they aaaaaaaa aaaa aaa aa\n\nabab ababab 1234 12345 don't DON'T café cafés 日本語日本\n  x\n "
    " x\n";

nlohmann::json trained_file(const BytePairTraining& training, int threads = 1) {
  return nlohmann::json::parse(train_byte_pairs(count_words({kText, kText + "the end"}, threads), training));
}

// The expected merges are those of BpeTrainer of `tokenizers` 0.23 with min_frequency=2 and three special tokens. Many
// pairs are equally frequent, and runs of one letter overlap themselves.
TEST(BytePairTraining, MergesAreThoseOfThePackage) {
  const std::vector<std::string> expected = {
      "a a",  "h e",   "t he",   "a b",      "Ġ aa",   "Ġ the",  "ab ab",   "1 2",     "a f",    "c af",     "¥ æ",
      "Ã ©",  "æ Ĺ",   "Ġ x",    "Ġ caf",    "ľ ¬",    "aa aa",  "Ġthe m",  "12 3",    "¥æ ľ¬",  "æĹ ¥æľ¬",  "Ġcaf Ã©",
      "' T",  "' t",   "4 5",    "D O",      "d o",    "ª ŀ",    "è ªŀ",    "Ċ Ċ",     "Ġ abab", "Ġ æĹ¥æľ¬", "Ġ DO",
      "Ġ do", "Ġaa a", "Ġaa aa", "Ġaa aaaa", "Ġthe n", "Ġthe y", "Ġthem e", "ĠcafÃ© s"};
  for (const int threads : {1, 3}) {
    const nlohmann::json file = trained_file({300, {kBytePairEnd, "<a>", "<b>"}}, threads);
    std::vector<std::string> merges;
    for (const auto& merge : file["model"]["merges"])
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    EXPECT_EQ(merges, expected);
    const nlohmann::json& vocab = file["model"]["vocab"];
    EXPECT_EQ(vocab.size(), 300u);
    EXPECT_EQ(vocab["<b>"], 2);
    EXPECT_EQ(vocab["!"], 3);    // the first character of the alphabet
    EXPECT_EQ(vocab["Ń"], 258);  // the last one
    EXPECT_EQ(vocab["ĠcafÃ©s"], 299);
  }
}

TEST(BytePairTraining, TheFileIsATokenizer) {
  const auto tokenizer =
      make_tokenizer({"tokenizer.json", trained_file({300, {kBytePairEnd}}).dump()}, {.end_of_document = 0}, "T");
  EXPECT_EQ(tokenizer->vocab_size(), 300);
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_EQ(tokenizer->encode(" them").size(), 1u);
  const std::string text = kText + "\xFF <|endoftext|>";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

// A token of this text would otherwise be the special one.
TEST(BytePairTraining, NoTextBecomesASpecialToken) {
  const nlohmann::json file = trained_file({290, {kBytePairEnd, "he"}});
  for (const auto& merge : file["model"]["merges"]) {
    EXPECT_FALSE(merge[0] == "h" && merge[1] == "e");
    EXPECT_NE(merge[1], "he");
  }
}

TEST(BytePairTraining, FaultsNameTheValue) {
  const auto refused = [](const BytePairTraining& training, const std::string& message) {
    EXPECT_ERROR(trained_file(training), ExitCode::bad_input, message);
  };
  refused({257, {kBytePairEnd, "<a>"}}, "vocab 257: must be at least 258 (256 bytes and 2 special tokens)");
  refused({500, {kBytePairEnd}}, "vocab 500 is larger than this text supports: at most ");
  refused({300, {kBytePairEnd, "Ġ"}}, "special token \"Ġ\" needs at least two characters");
  refused({300, {kBytePairEnd, ""}}, "needs at least two characters");
  refused({300, {"<a>", "<a>"}}, "\"<a>\" is given twice");
}

}  // namespace
}  // namespace shiftron
