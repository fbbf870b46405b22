// Requests become the tokens that lm-evaluation-harness gives a model of Hugging Face: white space, boundaries,
// truncation, windows. Expected numbers are what it computed with the same vocabulary.
#include "evaluate/score_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "data/fixture.h"
#include "evaluate/tasks/python_text.h"
#include "expect_error.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron::testing {
namespace {

using Tokens = std::vector<int32_t>;

// The longest piece that fits, from the left.
class ToyVocabulary {
 public:
  explicit ToyVocabulary(std::vector<std::pair<std::string, int32_t>> more = {}) : pieces_(std::move(more)) {
    for (const auto& [piece, number] : std::initializer_list<std::pair<const char*, int32_t>>{{"<s>", 0},
                                                                                              {"a", 1},
                                                                                              {"b", 2},
                                                                                              {"c", 3},
                                                                                              {" ", 4},
                                                                                              {"ab", 5},
                                                                                              {"bc", 6},
                                                                                              {" a", 7},
                                                                                              {" b", 8},
                                                                                              {"\n", 9},
                                                                                              {":", 10},
                                                                                              {"\xE3\x80\x80", 11},
                                                                                              {"  ", 12}}) {
      pieces_.emplace_back(piece, number);
    }
  }
  Tokens operator()(std::string_view text) const {
    Tokens tokens;
    while (!text.empty()) {
      const std::pair<std::string, int32_t>* longest = nullptr;
      for (const auto& piece : pieces_) {
        if (text.starts_with(piece.first) && (longest == nullptr || piece.first.size() > longest->first.size()))
          longest = &piece;
      }
      CHECK(longest != nullptr, "no piece for ", text);
      tokens.push_back(longest->second);
      text.remove_prefix(longest->first.size());
    }
    return tokens;
  }

 private:
  std::vector<std::pair<std::string, int32_t>> pieces_;
};

TokenRules toy_rules(bool begins_with_prefix = false, const ToyVocabulary& vocabulary = ToyVocabulary()) {
  return {.encode = vocabulary,
          .prefix = 0,
          .begins_with_prefix = begins_with_prefix,
          .prefix_text = "<s>",
          .max_length = 100};
}

// {context, continuation} as the model sees them.
std::pair<Tokens, Tokens> split(const std::string& context, const std::string& continuation, const TokenRules& rules) {
  const auto all = score_tokens({.context = context, .continuation = continuation}, rules, "request 0");
  CHECK(all.size() == 1, all.size(), " passes");
  const ScoreTokens& tokens = all.front();
  Tokens before(tokens.input.begin(), tokens.input.begin() + tokens.first + 1);
  EXPECT_EQ(Tokens(tokens.input.begin() + tokens.first + 1, tokens.input.end()),
            Tokens(tokens.targets.begin(), tokens.targets.end() - 1));
  return {before, tokens.targets};
}
using Split = std::pair<Tokens, Tokens>;

TEST(ScoreTokens, WhiteSpaceAtTheEndOfTheContextIsTheContinuations) {
  for (const bool prefix : {false, true}) {
    const TokenRules rules = toy_rules(prefix);
    const auto with = [&](Tokens context, const Tokens& continuation) {
      if (prefix) context.insert(context.begin(), 0);
      return Split{context, continuation};
    };
    EXPECT_EQ(split("a: ", "b", rules), with({1, 10}, {8}));
    EXPECT_EQ(split("a:\n", "b", rules), with({1, 10}, {9, 2}));
    EXPECT_EQ(split("a:\xE3\x80\x80", " b", rules), with({1, 10}, {11, 8}));
    EXPECT_EQ(split("a  ", "b", rules), with({1}, {12, 2}));
  }
}

TEST(ScoreTokens, WhiteSpaceIsPythons) {
  for (const char* space : {"\t",           "\n",           "\v",           "\f",           "\r",
                            "\x1C",         "\x1D",         "\x1E",         "\x1F",         " ",
                            "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x8A",
                            "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"}) {
    const std::string text = std::string("x") + space + " " + space;
    EXPECT_EQ(python::trailing_space(text), text.size() - 1) << text;
    EXPECT_EQ(python::trailing_space(space), std::string(space).size());
  }
  for (const char* other : {"\xE2\x80\x8B", "\xEF\xBB\xBF", "\x1B", "\xC2\x84", "\x85", "\xA0", "\xE2\x80\x8B ", "x"}) {
    const std::string text = other;
    EXPECT_EQ(python::trailing_space(text), text.ends_with(' ') ? 1 : 0) << text;
  }
  EXPECT_EQ(python::trailing_space(""), 0);
}

TEST(ScoreTokens, WhatMergesAcrossTheBorder) {
  EXPECT_EQ(split("a", "bc", toy_rules()), (Split{{1}, {3}}));  // the b is lost: "abc" is [ab, c]
  const TokenRules merging = toy_rules(false, ToyVocabulary({{"abc", 14}}));
  EXPECT_ERROR(split("a", "bc", merging), ExitCode::bad_input,
               "request 0: its continuation \"bc\" merges into the end of its context \"a\"");
  TokenRules alone = merging;
  alone.boundary_fallback = true;
  EXPECT_EQ(split("a", "bc", alone), (Split{{1}, {6}}));
}

TEST(ScoreTokens, EmptyContexts) {
  EXPECT_EQ(split("", "ab", toy_rules()), (Split{{0}, {5}}));
  EXPECT_EQ(split("", "ab", toy_rules(true)), (Split{{0}, {5}}));
  EXPECT_EQ(split("", "<s>ab", toy_rules()), (Split{{0}, {5}}));  // becomes the context
  EXPECT_ERROR(split(" ", "a", toy_rules()), ExitCode::bad_input, "request 0: its context is only white space");
  EXPECT_EQ(split(" ", "a", toy_rules(true)), (Split{{0}, {7}}));
  EXPECT_ERROR(split("", "", toy_rules()), ExitCode::bad_input, "request 0 has an empty continuation");
  EXPECT_ERROR(split("", "<s>", toy_rules()), ExitCode::bad_input,
               "request 0: its continuation \"<s>\" is only the begin-of-document token");
  EXPECT_EQ(split("<s>a:", "b", toy_rules(true)), (Split{{0, 1, 10}, {2}}));  // it stands there already
}

// Tokens that are their own numbers: "0 1 2".
TokenRules number_rules(int64_t max_length) {
  const auto encode = [](std::string_view text) {
    Tokens tokens;
    for (const char letter : text) tokens.push_back(letter - '0');
    return tokens;
  };
  return {.encode = encode, .prefix = 99, .max_length = max_length};
}

TEST(ScoreTokens, TruncationKeepsTheEnd) {
  const auto pass = [](const std::string& context, const std::string& continuation) {
    return score_tokens({.context = context, .continuation = continuation}, number_rules(4), "request 7").front();
  };
  const ScoreTokens far = pass("0123456789", ":;");  // 10, 11
  EXPECT_EQ(far.input, (Tokens{7, 8, 9, 10}));
  EXPECT_EQ(far.first, 2);
  EXPECT_EQ(far.targets, (Tokens{10, 11}));
  EXPECT_EQ(far.lost, 7);
  const ScoreTokens full = pass("01", "2345");
  EXPECT_EQ(full.input, (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(full.first, 0);
  EXPECT_EQ(full.lost, 1);
  const ScoreTokens exact = pass("012", "34");
  EXPECT_EQ(exact.input, (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(exact.first, 2);
  EXPECT_EQ(exact.lost, 0);
  EXPECT_ERROR(pass("0", "12345"), ExitCode::bad_input, "request 7: its continuation of 5 tokens is longer than the 4");
}

TEST(ScoreTokens, RollingWindows) {
  const auto windows = [](const std::string& text) {
    std::vector<std::pair<Tokens, Tokens>> all;
    for (const ScoreTokens& window :
         score_tokens({.kind = RequestKind::rolling, .context = text}, number_rules(4), "request 0")) {
      EXPECT_EQ(window.first + static_cast<int64_t>(window.targets.size()), static_cast<int64_t>(window.input.size()));
      all.emplace_back(window.input, window.targets);
    }
    return all;
  };
  using Windows = std::vector<std::pair<Tokens, Tokens>>;
  EXPECT_EQ(windows("0123456789"),
            (Windows{{{99, 0, 1, 2}, {0, 1, 2, 3}}, {{3, 4, 5, 6}, {4, 5, 6, 7}}, {{5, 6, 7, 8}, {8, 9}}}));
  EXPECT_EQ(windows("01234"), (Windows{{{99, 0, 1, 2}, {0, 1, 2, 3}}, {{0, 1, 2, 3}, {4}}}));
  EXPECT_EQ(windows("01"), (Windows{{{99, 0}, {0, 1}}}));
  EXPECT_EQ(windows(""), Windows{});
  // Where texts begin with a token, it is predicted too.
  const auto begun = score_tokens({.kind = RequestKind::rolling, .context = "ab"}, toy_rules(true), "request 0");
  EXPECT_EQ(begun.front().input, (Tokens{0, 0}));
  EXPECT_EQ(begun.front().targets, (Tokens{0, 5}));
}

TEST(ScoreTokens, PromptsLeaveRoomForWhatIsMade) {
  const auto prompt = [](const std::string& context, int64_t tokens) {
    return prompt_tokens({.kind = RequestKind::generate, .context = context, .generation = {.most_tokens = tokens}},
                         number_rules(4), "request 0");
  };
  EXPECT_EQ(prompt("012345", 2).input, (Tokens{4, 5}));
  EXPECT_EQ(prompt("012345", 2).lost, 4);
  EXPECT_EQ(prompt("0", 2).input, (Tokens{0}));
  EXPECT_EQ(prompt("0", 2).lost, 0);
  EXPECT_EQ(prompt("", 2).input, (Tokens{99}));
  EXPECT_ERROR(prompt("0", 4), ExitCode::bad_input, "request 0: 4 tokens are to be generated, which leaves no room");
}

TEST(ScoreTokens, TheModelsOwnTokenizer) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  LineEncoder encoder(tokenizer);
  for (int round = 0; round < 2; ++round) {
    for (const char* text :
         {"", "\n", "the key", "the key\nand the value\n\nthe key\n", "\n\n x", "a\xFF\n\xE3\x80\x80 b"}) {
      EXPECT_EQ(encoder(text), tokenizer.encode(text)) << text;
    }
  }
  const Request request{.context = "the key", .continuation = " and"};
  const auto first = [&](BeginningToken beginning) {
    return score_tokens(request, token_rules(tokenizer, beginning, 64, false), "request 0").front().input.front();
  };
  EXPECT_EQ(first(BeginningToken::tokenizer), tokenizer.encode("the key").front());
  EXPECT_EQ(first(BeginningToken::never), tokenizer.encode("the key").front());
  EXPECT_EQ(first(BeginningToken::always), tokenizer.end_of_document());
  EXPECT_EQ(score_tokens({.continuation = "key"}, token_rules(tokenizer, BeginningToken::never, 64, false), "request 0")
                .front()
                .input.front(),
            tokenizer.end_of_document());
}

TEST(ScoreTokens, ATokenizerThatBeginsDocumentsDoesSoForTexts) {
  const auto file = nlohmann::json::parse(
      read_file(std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/llama_3.json"))["tokenizer"];
  constexpr int32_t kEnd = 1, kBegin = 0;
  const auto input = [&](const Request& request, BeginningToken beginning, bool special_text) {
    const auto tokenizer =
        make_tokenizer({"tokenizer.json", file.dump()}, {kEnd, kBegin, special_text}, "tokenizer.json");
    return score_tokens(request, token_rules(*tokenizer, beginning, 64, false), "request 0").front().input;
  };
  const Request text{.context = "the", .continuation = " key"};
  EXPECT_EQ(input(text, BeginningToken::tokenizer, false).front(), kBegin);
  EXPECT_EQ(input(text, BeginningToken::always, false).front(), kBegin);
  EXPECT_NE(input(text, BeginningToken::never, false).front(), kBegin);
  EXPECT_EQ(input({.continuation = "key"}, BeginningToken::never, false).front(), kBegin);
  const Request named{.context = "<|begin_of_text|>the", .continuation = " key"};
  EXPECT_EQ(input(named, BeginningToken::tokenizer, true), input(text, BeginningToken::tokenizer, true));
}

}  // namespace
}  // namespace shiftron::testing
