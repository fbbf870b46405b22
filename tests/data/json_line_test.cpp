// Lines of JSON: strings as another library reads them, and every fault with its place.
#include "data/json_line.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "expect_error.h"

namespace shiftron {
namespace {

std::string text_in(const std::string& line, uint64_t* replaced = nullptr) {
  uint64_t count = 0;
  return JsonLine(line, "a:1").text("text", replaced == nullptr ? count : *replaced);
}

TEST(JsonLine, KeysThatNobodyAsksForDecideNothing) {
  for (const char* value : {"NaN", "-Infinity", "1.e5", "01", "\"\\ud800\"", "\"\\x\"", "\"\xFF\"", "\"a\tb\"",
                            "[NaN, {\"a\": [], \"b\": {}}, \"]\"]", "{\"text\": \"inner\", \"b\": [1, \"\\\"}\"]}"}) {
    for (const std::string& line : {"{\"text\":\"one\",\"x\":" + std::string(value) + "}",
                                    "{ \"x\" : " + std::string(value) + " , \"text\" : \"one\" } \r"}) {
      EXPECT_EQ(text_in(line), "one") << line;
    }
  }
  EXPECT_EQ(text_in("{\"\\ud800\": 1, \"\\q\": 2, \"text\": \"one\"}"), "one");
}

TEST(JsonLine, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(text_in("{\"text\": \"one\", \"te\\u0078t\": \"two\"}"), "two");
  EXPECT_FALSE(JsonLine("{\"texts\": 1}", "a:1").has("text"));
  EXPECT_FALSE(JsonLine("{ }", "a:1").has("text"));
}

// Random characters, so that escapes and ends of strings fall on every place of a word of eight bytes.
TEST(JsonLine, StringsEqualThoseOfAnotherReader) {
  constexpr uint32_t kSpecial[] = {'"',  '\\', '/',  0,    7,      8,      '\n',   '\r',
                                   '\t', 0x1F, 0x7F, 0xE9, 0x20AC, 0xFFFD, 0x1F600};
  uint32_t state = 1;
  const auto random = [&](uint32_t below) { return ((state = state * 1664525u + 1013904223u) >> 8) % below; };
  for (int round = 0; round < 2000; ++round) {
    std::u32string characters;
    for (uint32_t left = random(40); left > 0; --left) {
      characters += static_cast<char32_t>(random(4) == 0 ? kSpecial[random(std::size(kSpecial))] : 'a' + random(26));
    }
    std::string text;
    for (const char32_t code : characters) {
      char units[32];
      if (code < 0x10000) {
        std::snprintf(units, sizeof units, "\"\\u%04x\"", static_cast<unsigned>(code));
      } else {
        std::snprintf(units, sizeof units, "\"\\u%04x\\u%04x\"", static_cast<unsigned>(0xD7C0 + (code >> 10)),
                      static_cast<unsigned>(0xDC00 + (code & 0x3FF)));
      }
      text += nlohmann::json::parse(units).get<std::string>();
    }
    const nlohmann::json object = {{"a", text}, {"text", text}, {"z", text}};
    for (const bool ascii : {false, true}) EXPECT_EQ(text_in(object.dump(-1, ' ', ascii)), text);
  }
}

TEST(JsonLine, SurrogatesWithoutAPartnerAreReplacedAndCounted) {
  uint64_t replaced = 0;
  EXPECT_EQ(text_in("{\"text\": \"\\ud83d\\ude00\\/\"}", &replaced), "\xF0\x9F\x98\x80/");
  EXPECT_EQ(replaced, 0u);
  EXPECT_EQ(text_in("{\"text\": \"a\\ud83d\"}", &replaced), "a\xEF\xBF\xBD");
  EXPECT_EQ(text_in("{\"text\": \"\\ude00b\"}", &replaced),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(text_in("{\"text\": \"\\ud83d\\u0041\"}", &replaced),
            "\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(text_in("{\"text\": \"\\ud83d\\ud83d\\ude00\"}", &replaced), "\xEF\xBF\xBD\xF0\x9F\x98\x80");
  EXPECT_EQ(replaced, 4u);
}

TEST(JsonLine, BytesThatAreNotUtf8AreKept) {
  EXPECT_EQ(text_in("{\"text\": \"caf\xE9\\n\xC0\"}"), "caf\xE9\n\xC0");
}

TEST(JsonLine, FaultsHaveAPlace) {
  const std::pair<const char*, const char*> kFaults[] = {
      {"{\"text\": \"cut", "a:1: not JSON: at byte 10 of the line, the string that begins here does not end"},
      {"{\"text\": \"cut\\", "at byte 10 of the line, the string"},
      {"{\"text\": \"a\"", "at byte 1 of the line, the object that begins here does not end"},
      {"{\"text\": \"a\",", "at byte 1 of the line, the object"},
      {"{\"text\": [1, {\"a\": 2}", "at byte 10 of the line, the value that begins here does not end"},
      {"{\"text\": [1}", "at byte 12 of the line, a comma or ] is missing"},
      {"{\"text\": {\"a\": 1]}", "at byte 17 of the line, a comma or } is missing"},
      {"{\"text\": {1: 1}}", "at byte 11 of the line, a key in quotes is missing"},
      {"{\"text\": {\"a\"}}", "at byte 14 of the line, a colon is missing"},
      {"{\"text\": {\"a\": 1, }}", "at byte 19 of the line, a key in quotes is missing"},
      {"{\"text\": [1,]}", "at byte 13 of the line, a value is missing"},
      {"{\"text\": }", "at byte 10 of the line, a value is missing"},
      {"{\"text\":", "at byte 9 of the line, the line ends where a value is missing"},
      {"{\"text\" \"a\"}", "at byte 9 of the line, a colon is missing"},
      {"{text: 1}", "at byte 2 of the line, a key in quotes is missing"},
      {"{\"text\": \"a\"}{\"text\": \"b\"}",
       "at byte 14 of the line, more follows after the object; write one object per line"},
      {"{\"text\": \"a\" \"b\": 1}", "at byte 14 of the line, a comma or } is missing"},
      {"plain", "at byte 1 of the line, an object in braces is missing"},
      {"[1]", "a:1: a JSON array, not an object"},
      {"{\"text\": NaN}", "a:1: the value of \"text\" is a number, not a string"},
      {"{\"text\": null}", "is a null, not a string"},
      {"{\"text\": true}", "is a boolean, not a string"},
      {"{\"text\": [\"a\"]}", "is a JSON array, not a string"},
      {"{\"text\": \"a\tb\"}", "at byte 12 of the line, a control character within a string"},
      {"{\"text\": \"12345678\\x\"}", "at byte 19 of the line, an escape that JSON does not have"},
      {"{\"text\": \"\\u12g4\"}", "at byte 11 of the line, \\u needs four hexadecimal digits"},
      {"{\"text\": \"\\u12\"}", "at byte 11 of the line, \\u needs four hexadecimal digits"},
  };
  for (const auto& [line, fault] : kFaults) EXPECT_ERROR(text_in(line), ExitCode::bad_input, fault);
}

// It must not use the stack.
TEST(JsonLine, DeepNesting) {
  const std::string open(1000000, '['), close(1000000, ']');
  EXPECT_EQ(text_in("{\"x\": " + open + close + ", \"text\": \"one\"}"), "one");
}

}  // namespace
}  // namespace shiftron
