// Parts of tokenizer.json treat every character of Unicode, and patterns, as the package `tokenizers` does:
// tests/tokenizer/write_classes.py stored what it says.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "expect_error.h"
#include "tokenizer/hugging_face/character_classes.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/normalizer.h"
#include "tokenizer/hugging_face/pre_tokenizer.h"
#include "tokenizer/hugging_face/recent_characters.h"
#include "tokenizer/hugging_face/regular_expression.h"

namespace shiftron {
namespace {

using nlohmann::json;

const json& stored() {
  static const json content =
      json::parse(read_file(std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/classes.json"));
  return content;
}

std::vector<char32_t> all_characters() {
  std::vector<char32_t> all;
  for (char32_t character = 0; character <= 0x10FFFF; ++character) {
    if (character < 0xD800 || character > 0xDFFF) all.push_back(character);
  }
  return all;
}

// As summary() of the script: how many, and the FNV-1a hash of their bytes.
json summary(const std::vector<char32_t>& rows) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char32_t row : rows) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (row >> shift & 255)) * 0x100000001B3;
  }
  std::array<char, 17> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(hash));
  return json{rows.size(), hex.data()};
}

std::vector<std::string> pieces_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string> pieces;
  pre_tokenizer.split({text, true, false}, [&](const TextPiece& piece) { pieces.emplace_back(piece.text); });
  return pieces;
}

// Every character that matches; text: of UTF-8.
std::vector<char32_t> matches_of(const RegularExpression& expression, const std::string& text) {
  std::vector<char32_t> found;
  expression.for_each_match(text, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end;) {
      const CodePoint character = first_code_point(std::string_view(text).substr(at));
      found.push_back(character.value);
      at += character.bytes;
    }
  });
  return found;
}

TEST(HuggingFaceParts, SetsOfPatternsHaveTheSameCharacters) {
  std::string all, older;
  for (const char32_t character : all_characters()) {
    append_utf8(all, character);
    if (recent_category(character).empty()) append_utf8(older, character);
  }
  ASSERT_TRUE(has_recent_characters(all));
  ASSERT_FALSE(has_recent_characters(older));
  for (const auto& [pattern, expected] : stored().at("sets").items()) {
    const json name(pattern);
    const RegularExpression expression(pattern, JsonPart(name, "test"));
    std::vector<char32_t> found = matches_of(expression, all);
    EXPECT_EQ(summary(found), expected) << pattern;
    std::erase_if(found, [](char32_t character) { return !recent_category(character).empty(); });
    EXPECT_EQ(matches_of(expression, older), found) << pattern;
  }
}

TEST(HuggingFaceParts, PreTokenizersSeparateTheSameCharacters) {
  for (const auto& [name, expected] : stored().at("classes").items()) {
    const json part = {{"type", name}, {"individual_digits", true}};
    const auto pre_tokenizer = read_pre_tokenizer(JsonPart(part, "test"));
    std::vector<char32_t> separated;
    for (const char32_t character : all_characters()) {
      const std::string text = "a" + utf8_of(character);
      if (pieces_of(*pre_tokenizer, text) != std::vector{text}) separated.push_back(character);
    }
    EXPECT_EQ(summary(separated), expected) << name;
  }
}

TEST(HuggingFaceParts, NormalizersChangeCharactersToTheSame) {
  for (const auto& [name, expected] : stored().at("changes").items()) {
    const json part = {{"type", name}};
    const auto normalizer = read_normalizer(JsonPart(part, "test"));
    std::vector<char32_t> changes;
    for (const char32_t character : all_characters()) {
      const std::string before = utf8_of(character);
      std::string after = before;
      normalizer->apply(after, false);
      if (after == before) continue;
      changes.push_back(character);
      for (std::string_view rest = after; !rest.empty(); rest.remove_prefix(first_code_point(rest).bytes)) {
        changes.push_back(first_code_point(rest).value);
      }
    }
    EXPECT_EQ(summary(changes), expected) << name;
  }
}

TEST(HuggingFaceParts, PatternsSplitTextsAlike) {
  for (const json& row : stored().at("splits")) {
    const json part = {{"type", "Split"}, {"pattern", {{"Regex", row[0]}}}, {"behavior", row[1]}, {"invert", row[2]}};
    const auto pre_tokenizer = read_pre_tokenizer(JsonPart(part, "test"));
    EXPECT_EQ(json(pieces_of(*pre_tokenizer, row[3].get<std::string>())), row[4]) << row.dump();
  }
}

TEST(HuggingFaceParts, WhatPatternsCannotSayIsRefused) {
  const auto expect = [](const std::string& pattern, const std::string& words) {
    const json name(pattern);
    EXPECT_ERROR(RegularExpression(pattern, JsonPart(name, "T: p")), ExitCode::bad_input, words);
  };
  expect("a(?x) b", "T: p: the regular expression has an unknown kind of group");
  expect("(a", "a ( without its )");
  expect("a)", "a ) without its (");
  expect("[a", "a [ without its ]");
  expect("*a", "a quantifier of nothing");
  expect("a**", "a quantifier of a quantifier");
  expect("a(?i)b", "options within a group");
  expect("\\Ka", "\\K");
  expect("\\p{Klingon}", "is not supported");
  expect("[[:graph:]]", "[:graph:]");
  expect("[z-a]", "a range that ends before it begins");
  expect(std::string(60, '('), "too many groups in one another");
  expect(std::string(60, '['), "too many sets in one another");
}

// An expression that must try too many ways ends with a message, not with a hang.
TEST(HuggingFaceParts, EndlessMatchesAreReported) {
  const std::string pattern = "(?:a|aa)+$";
  const json name(pattern);
  const RegularExpression expression(pattern, JsonPart(name, "T: p"));
  EXPECT_ERROR(expression.for_each_match(std::string(40, 'a') + "b", [](size_t, size_t) {}), ExitCode::bad_input,
               "cannot be matched with a text of 41 bytes: match limit exceeded");
}

}  // namespace
}  // namespace shiftron
