// Words whose tokens are known are encoded as the model encodes the whole text.
#include "tokenizer/known_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "data/fixture.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron {
namespace {

// `length` characters out of `alphabet`.
std::string random_text(std::mt19937& random, std::string_view alphabet, size_t length) {
  std::string text(length, '\0');
  for (char& byte : text) byte = alphabet[random() % alphabet.size()];
  return text;
}

std::string with_marks(const std::string& text) {
  std::string marked;
  for (const char byte : text) marked += byte == ' ' ? "\xE2\x96\x81" : std::string(1, byte);
  return marked;
}

// How many words are known after the texts, each of which gets the same tokens as without known words.
size_t expect_same(const Tokenizer& tokenizer, const std::vector<std::string>& texts, size_t most = 1000) {
  KnownWords known(most);
  for (const std::string& text : texts) EXPECT_EQ(tokenizer.encode(text, {}, &known), tokenizer.encode(text)) << text;
  EXPECT_LE(known.size(), most);
  return known.size();
}

TEST(KnownWords, AreThoseOfTheText) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  EXPECT_EQ(expect_same(tokenizer, {"the tensor", " the tensor", "the  tensor\nthe "}), 5u);  // the trailing space too
  const std::string longest(KnownWords::kLongest, 'x');
  EXPECT_EQ(expect_same(tokenizer, {longest + "x", longest, longest}), 1u);
}

TEST(KnownWords, AreForgottenWhenThereAreTooMany) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  for (const size_t most : {1, 2, 7}) {
    EXPECT_GT(expect_same(tokenizer, {example_text(30), example_text(50)}, most), 0u);
  }
}

// Pieces out of few letters, many of equal scores, some that are defined by a user, some that are unused.
std::string random_model(std::mt19937& random, std::string_view letters) {
  std::string bytes = example_model();
  std::set<std::string> texts = {"A", "B", "C"};
  while (texts.size() < 33) {
    texts.insert((random() % 3 == 0 ? " " : "") + random_text(random, letters, 2 + random() % 4));
  }
  for (const std::string& text : texts) {
    const uint32_t chance = text.size() == 1 ? 9 : random() % 10;
    bytes += piece_field(with_marks(text),
                         chance == 0  ? kUserDefined
                         : chance < 3 ? kUnused
                                      : kNormal,
                         -static_cast<float>(random() % 8));
  }
  return bytes;
}

TEST(KnownWords, ChangeNoTokens) {
  std::mt19937 random(7);
  int with_words = 0, models = 0;
  for (const std::string_view letters : {"AB", "ABC", "AB "}) {
    for (int model = 0; model < 100; ++model, ++models) {
      const SentencePieceTokenizer tokenizer(random_model(random, letters), "random");
      std::vector<std::string> texts;  // D has no piece
      for (int text = 0; text < 20; ++text) texts.push_back(random_text(random, "AAABBBCC  D\n", random() % 60));
      with_words += expect_same(tokenizer, texts) > 0;
      if (HasFailure()) FAIL() << models;
    }
  }
  EXPECT_EQ(with_words, 200);  // of the last 100 some piece reaches across words
}

// A piece that ends within the bytes of a space's mark is found across words; no order holds where a score is no
// number.
TEST(KnownWords, AreNoneWhereOthersDecide) {
  for (const std::string& piece : {piece_field("q\xE2", kUserDefined), piece_field("q\xE2\x96", kUserDefined),
                                   piece_field("AB", kNormal, std::nanf(""))}) {
    const SentencePieceTokenizer tokenizer(example_model() + piece, "model");
    EXPECT_EQ(expect_same(tokenizer, {"q the", "AB the"}), 0u);
  }
}

TEST(KnownWords, OfManyTokensAreFewer) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  std::vector<std::string> texts;
  for (int i = 0; i < 80; ++i) texts.push_back(std::string(40, static_cast<char>('A' + i % 26)) + std::to_string(i));
  EXPECT_LE(expect_same(tokenizer, texts, 90), 18u);  // 8 · 90 tokens
}

// Scores of a long text are rounded, so that the better one of two ways is another than alone.
TEST(KnownWords, AreNoneWhereScoresAreSummed) {
  const SentencePieceTokenizer tokenizer(trained_model(200, 310, "unigram") + piece_field("A", kNormal, -5) +
                                             piece_field("B", kNormal, -5) + piece_field("AB", kNormal, -10.00001f),
                                         "unigram");
  std::string text = "AB";
  for (int i = 0; i < 300; ++i) text += " the AB";
  EXPECT_EQ(expect_same(tokenizer, {text}), 0u);
  const std::vector<int32_t> word = tokenizer.encode("AB"), all = tokenizer.encode(text);
  EXPECT_TRUE(std::equal(word.begin(), word.end(), all.begin()));
  EXPECT_FALSE(std::equal(word.begin(), word.end(), all.end() - static_cast<std::ptrdiff_t>(word.size())));
}

}  // namespace
}  // namespace shiftron
