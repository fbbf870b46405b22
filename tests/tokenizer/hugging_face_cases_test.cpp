// tokenizer.json of every family gives the ids of the package `tokenizers`: tests/tokenizer/write_cases.py stored them.
// tests/tokenizer/check_conformance.py compares far more texts with the package itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tokenizer/known_words.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const std::string kCases = std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/";

json read_case(const std::string& name) {
  return json::parse(read_file(kCases + name + ".json"));
}

int32_t last_special(const json& tokenizer) {
  int32_t id = -1;
  for (const json& token : tokenizer.at("added_tokens")) {
    if (token.at("special")) id = token.at("id");
  }
  return id;
}

std::unique_ptr<Tokenizer> make(const json& tokenizer, bool special_text) {
  return make_tokenizer({"tokenizer.json", tokenizer.dump()},
                        {.end_of_document = last_special(tokenizer), .special_text = special_text}, "case");
}

class HuggingFaceCases : public ::testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceCases, IdsAreThoseOfThePackage) {
  const auto texts = read_case("texts").get<std::vector<std::string>>();
  const json stored = read_case(GetParam());
  const json& all_plain = stored.at("plain");
  ASSERT_EQ(all_plain.size(), texts.size());
  const auto tokenizer = make(stored.at("tokenizer"), false), special = make(stored.at("tokenizer"), true);
  KnownWords known;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string number = std::to_string(i);
    const Ids ids = tokenizer->encode(texts[i]);
    EXPECT_EQ(tokenizer->encode(texts[i], {}, &known), ids) << json(texts[i]).dump();
    if (all_plain[i].is_null()) {  // the package gives special tokens for their names
      for (const int32_t id : ids) EXPECT_FALSE(tokenizer->is_special(id)) << json(texts[i]).dump();
    } else {
      EXPECT_EQ(ids, all_plain[i].get<Ids>()) << json(texts[i]).dump();
      EXPECT_EQ(tokenizer->decode(ids), stored.at("decoded").value(number, texts[i]));
    }
    EXPECT_EQ(special->encode(texts[i]), stored.at("special").value(number, ids)) << json(texts[i]).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(, HuggingFaceCases,
                         ::testing::Values("bloom", "cl100k", "deepseek_3", "falcon", "gemma", "gpt_2", "gpt_4o",
                                           "llama_2", "llama_3", "metaspace", "mistral", "neo_x", "qwen_2", "roberta",
                                           "smollm_2", "unigram", "words"),
                         [](const auto& one) { return one.param; });

TEST(HuggingFaceFiles, EveryStoredFamilyIsTested) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) files += entry.path().extension() == ".json";
  EXPECT_EQ(files, 17u + 2);  // and texts.json, classes.json
}

}  // namespace
}  // namespace shiftron
