// White space, the border between context and continuation, truncation, windows.
#include "evaluate/score_tokens.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

using Tokens = std::vector<int32_t>;

// Encodes a whole text, with the prefix in front if the rules ask for it.
Tokens encode_text(std::string_view text, const TokenRules& rules) {
  Tokens tokens = rules.encode(text);
  const bool there = !rules.prefix_text.empty() && text.starts_with(rules.prefix_text);
  if (rules.begins_with_prefix && !there) tokens.insert(tokens.begin(), rules.prefix);
  return tokens;
}

// The end of a text, in quotation marks, for messages.
std::string shown_end(const std::string& text) {
  constexpr size_t kShown = 40;
  if (text.size() <= kShown) return "\"" + text + "\"";
  size_t begin = text.size() - kShown;
  while (begin < text.size() && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) ++begin;
  return "\"…" + text.substr(begin) + "\"";
}

// Keeps the last `most` tokens; returns how many were dropped.
int64_t keep_last(Tokens& tokens, int64_t most) {
  const int64_t lost = std::max<int64_t>(0, static_cast<int64_t>(tokens.size()) - most);
  tokens.erase(tokens.begin(), tokens.begin() + lost);
  return lost;
}

struct Pair {
  Tokens context, continuation;
};

Pair encode_pair(const Request& request, const TokenRules& rules, const std::string& name) {
  if (request.context.empty()) {
    Tokens continuation = rules.encode(request.continuation);
    if (continuation.empty()) throw_bad_input(name, " has an empty continuation; give it a text to score");
    if (continuation.front() == rules.prefix) continuation.erase(continuation.begin());
    if (continuation.empty()) {
      throw_bad_input(name, ": its continuation ", shown_end(request.continuation),
                      " is only the begin-of-document token; give it a text to score");
    }
    return {{rules.prefix}, std::move(continuation)};
  }
  const size_t spaces = python::trailing_space(request.context);
  const std::string context = request.context.substr(0, request.context.size() - spaces);
  const std::string continuation = request.context.substr(context.size()) + request.continuation;
  Pair pair{encode_text(context, rules), encode_text(context + continuation, rules)};
  if (pair.context.empty()) {
    throw_bad_input(name,
                    ": its context is only white space, and no token precedes it; give it a text, omit it, or put a "
                    "token in front (--bos 1)");
  }
  const size_t context_size = std::min(pair.context.size(), pair.continuation.size());
  pair.continuation.erase(pair.continuation.begin(), pair.continuation.begin() + static_cast<int64_t>(context_size));
  if (pair.continuation.empty() && rules.boundary_fallback) pair.continuation = rules.encode(continuation);
  if (pair.continuation.empty()) {
    throw_bad_input(name, ": its continuation ", shown_end(continuation), " merges into the end of its context ",
                    shown_end(context), ", so no token is left to score; --boundary-fallback encodes it alone");
  }
  return pair;
}

}  // namespace

std::vector<ScoreTokens> rolling_windows(const Tokens& tokens, int32_t prefix, int64_t length) {
  CHECK(length > 0, "windows of ", length, " tokens");
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<ScoreTokens> windows;
  for (int64_t done = 0; done < count;) {
    const int64_t end = std::min(count, done + length);
    // The last window starts early, so that it is as long as the others. The first starts with the prefix.
    const int64_t begin = done == 0 ? -1 : std::max<int64_t>(end - length, 0) - 1;
    ScoreTokens window;
    for (int64_t at = begin; at < end - 1; ++at)
      window.input.push_back(at < 0 ? prefix : tokens[static_cast<size_t>(at)]);
    window.first = done - 1 - begin;
    window.targets.assign(tokens.begin() + done, tokens.begin() + end);
    windows.push_back(std::move(window));
    done = end;
  }
  return windows;
}

std::vector<ScoreTokens> score_tokens(const Request& request, const TokenRules& rules, const std::string& name) {
  CHECK(request.kind != RequestKind::generate, name, " is to be continued, not scored");
  if (request.kind == RequestKind::rolling) {
    return rolling_windows(encode_text(request.context, rules), rules.prefix, rules.max_length);
  }
  Pair pair = encode_pair(request, rules, name);
  const auto scored = static_cast<int64_t>(pair.continuation.size());
  if (scored > rules.max_length) {
    throw_bad_input(name, ": its continuation of ", scored, " tokens is longer than the ", rules.max_length,
                    " tokens of the longest input (--max-length); shorten it, or score it as a rolling text");
  }
  ScoreTokens tokens{.input = std::move(pair.context), .first = 0, .targets = pair.continuation};
  tokens.input.insert(tokens.input.end(), pair.continuation.begin(), pair.continuation.end() - 1);
  tokens.lost = keep_last(tokens.input, rules.max_length);
  tokens.first = static_cast<int64_t>(tokens.input.size()) - scored;
  return {std::move(tokens)};
}

PromptTokens prompt_tokens(const Request& request, const TokenRules& rules, const std::string& name) {
  const int64_t room = rules.max_length - request.generation.most_tokens;
  if (room <= 0) {
    throw_bad_input(name, ": ", request.generation.most_tokens,
                    " tokens are to be generated, which leaves no room for a prompt within ", rules.max_length,
                    " (--max-length); generate fewer");
  }
  PromptTokens tokens{.input = encode_text(request.context, rules)};
  if (tokens.input.empty()) tokens.input = {rules.prefix};
  tokens.lost = keep_last(tokens.input, room);
  return tokens;
}

std::vector<int32_t> LineEncoder::operator()(std::string_view text) {
  constexpr size_t kMostBytes = size_t{128} << 20;
  Tokens tokens;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const size_t bytes =
        newline == std::string_view::npos || !tokenizer_->lines_stand_alone() ? text.size() : newline + 1;
    const std::string line(text.substr(0, bytes));
    auto known = lines_.find(line);
    if (known == lines_.end()) {
      if (bytes_ > kMostBytes) {
        lines_.clear();
        bytes_ = 0;
      }
      Tokens encoded = tokenizer_->encode(line);
      bytes_ += line.size() + encoded.size() * sizeof(int32_t);
      known = lines_.emplace(line, std::move(encoded)).first;
    }
    tokens.insert(tokens.end(), known->second.begin(), known->second.end());
    text.remove_prefix(bytes);
    if (progress_ != nullptr) progress_->advance(bytes);
  }
  return tokens;
}

TokenRules token_rules(const Tokenizer& tokenizer, BeginningToken beginning, int64_t max_length, bool boundary_fallback,
                       Progress* progress) {
  const auto encoder = std::make_shared<LineEncoder>(tokenizer, progress);
  const int32_t token = tokenizer.beginning_of_document();
  const bool begins = token >= 0;
  return {
      .encode = [encoder](std::string_view text) { return (*encoder)(text); },
      .prefix = begins ? token : tokenizer.end_of_document(),
      .begins_with_prefix = beginning == BeginningToken::always || (begins && beginning == BeginningToken::tokenizer),
      .prefix_text = begins && tokenizer.settings().special_text ? tokenizer.piece(token) : "",
      .max_length = max_length,
      .boundary_fallback = boundary_fallback};
}

}  // namespace shiftron
