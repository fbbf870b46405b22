// What a GGUF file says of a byte-level tokenizer. tests/interchange/check_gguf.py compares llama.cpp's ids with those
// of the package `tokenizers`.
#include "interchange/gguf_byte_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "interchange/tokenizer_families.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int32_t kTextType = 1, kControlType = 3, kFoundType = 4, kUnusedType = 5;

GgufTokenizer gguf_of(const json& file, TokenizerSettings settings = {}) {
  for (const json& token : file.at("added_tokens")) {
    if (settings.end_of_document < 0 && token.at("special")) settings.end_of_document = token.at("id");
  }
  return gguf_byte_level(*make_tokenizer({"tokenizer.json", file.dump()}, settings, "T"));
}

TEST(GgufByteLevel, TheWayToCutWordsHasTheNameOfLlamaCpp) {
  const std::map<std::string, std::string> names = {
      {"gpt_2", "gpt-2"},   {"neo_x", "gpt-2"}, {"smollm_2", "smollm"},       {"llama_3", "llama-bpe"},
      {"gpt_4o", "gpt-4o"}, {"bloom", "bloom"}, {"deepseek_3", "deepseek-v3"}};
  for (const auto& [family, name] : names) {
    const GgufTokenizer found = gguf_of(family_file(family));
    EXPECT_EQ(found.model, "gpt2");
    EXPECT_EQ(found.pre, name) << family;
    EXPECT_EQ(found.note.empty(), family != "gpt_4o" && family != "neo_x") << found.note;
  }
  json file = family_file("llama_3");
  file["model"]["ignore_merges"] = false;
  EXPECT_EQ(gguf_of(file).pre, "dbrx");
  file = family_file("deepseek_3");  // line ends as such
  std::string& pattern = file["pre_tokenizer"]["pretokenizers"][2]["pattern"]["Regex"].get_ref<std::string&>();
  for (size_t at; (at = pattern.find("\\r\\n")) != pattern.npos;) pattern.replace(at, 4, "\r\n");
  EXPECT_EQ(gguf_of(file).pre, "deepseek-v3");
}

TEST(GgufByteLevel, WhatLlamaCppWouldCutDifferentlyIsRefused) {
  const auto refused = [](const std::string& family, const json& patch, const std::string& message) {
    json file = family_file(family);
    file.merge_patch(patch);
    EXPECT_ERROR(gguf_of(file), ExitCode::bad_input, message);
  };
  const json none = json::object();
  refused("cl100k", none, "pre_tokenizer.pretokenizers[0]: llama.cpp cuts at matches");
  refused("falcon", none, "does not know the pre-tokenizer Punctuation");
  refused("roberta", none, "pre_tokenizer.add_prefix_space: is true");
  refused("llama_2", none, "T: model: is a BPE model that is not byte-level");
  refused("unigram", none, "T: model: is a Unigram model that is not byte-level");
  refused("gpt_2", {{"model", {{"ignore_merges", true}}}},
          "model.ignore_merges: llama.cpp knows this pre-tokenizer only with false");
  refused("gpt_2", {{"normalizer", {{"type", "Lowercase"}}}}, "normalizer: llama.cpp normalises no text");
  refused("qwen_2", none, "has lstrip, rstrip or single_word");
  json file = family_file("gpt_2");
  file["added_tokens"][0]["lstrip"] = true;
  EXPECT_EQ(gguf_of(file).note, "");  // its name is not looked for
  EXPECT_ERROR(gguf_of(file, {.end_of_document = 0, .special_text = true}), ExitCode::bad_input, "has lstrip");
  file = family_file("smollm_2");
  file["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_ERROR(gguf_of(file), ExitCode::bad_input,
               "no name for the way it cuts words: \"Digits in runs\", \"ByteLevel\"");
  file = family_file("gpt_2");
  file["model"]["vocab"].erase("!");
  file["model"]["merges"] = json::array();
  EXPECT_ERROR(gguf_of(file), ExitCode::bad_input, "T has no token for byte 33");
}

TEST(GgufByteLevel, TokensHaveTheirTypes) {
  json file = family_file("llama_3");
  const auto vocab = file["model"]["vocab"].size();
  // "[PAD" is one word, which llama.cpp would find among the tokens.
  for (const json& token : {added_token(vocab, "two words", false), added_token(vocab + 1, "[PAD", true),
                            added_token(vocab + 3, "<|x|>", true)})
    file["added_tokens"].push_back(token);
  const GgufTokenizer found = gguf_of(file, {.end_of_document = 1, .beginning_of_document = 0});
  ASSERT_EQ(found.pieces.size(), vocab + 4);
  ASSERT_EQ(found.types.size(), vocab + 4);
  EXPECT_TRUE(found.scores.empty());
  EXPECT_FALSE(found.unknown);
  EXPECT_EQ(found.pieces[0], "<|begin_of_text|>");
  EXPECT_EQ(found.beginning_of_document, 0u);
  EXPECT_EQ(found.end_of_document, 1u);
  const auto expect = [&](size_t id, const std::string& piece, int32_t type) {
    EXPECT_EQ(found.pieces[id], piece);
    EXPECT_EQ(found.types[id], type) << piece;
  };
  expect(0, "<|begin_of_text|>", kControlType);
  expect(3, "!", kTextType);
  expect(vocab, "two words", kFoundType);
  expect(vocab + 1, "[control " + std::to_string(vocab + 1) + "]", kControlType);
  expect(vocab + 2, "[unused " + std::to_string(vocab + 2) + "]", kUnusedType);
  expect(vocab + 3, "<|x|>", kControlType);
}

TEST(GgufByteLevel, MergesAreThoseThatTextsUse) {
  json file = family_file("gpt_2");
  file["model"]["vocab"]["q~"] = 9000;
  file["model"]["vocab"]["a b"] = 9001;
  file["added_tokens"].push_back(file["added_tokens"][0]);
  file["added_tokens"][1]["content"] = "q~";
  file["added_tokens"][1]["id"] = 9000;
  json& merges = file["model"]["merges"];
  const size_t before = merges.size();
  merges.push_back({"q", "~"});  // to a special token
  merges.push_back(merges[0]);   // replaces the first one
  const GgufTokenizer found = gguf_of(file);
  ASSERT_EQ(found.merges.size(), before);
  const auto text = [](const json& merge) { return merge[0].get<std::string>() + " " + merge[1].get<std::string>(); };
  EXPECT_EQ(found.merges.front(), text(merges[1]));
  EXPECT_EQ(found.merges.back(), text(merges[0]));
  EXPECT_THAT(found.merges, Not(Contains("q ~")));
  EXPECT_THAT(gguf_of(file, {.end_of_document = 0, .special_text = true}).merges, Contains("q ~"));
}

}  // namespace
}  // namespace shiftron
