// A tree of bytes, walked from every place where a token may begin.
#include "tokenizer/hugging_face/added_tokens.h"

#include <algorithm>

#include "tokenizer/hugging_face/character_classes.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

std::vector<AddedToken> read_added_tokens(const JsonPart& part) {
  std::vector<AddedToken> tokens;
  for (const JsonPart& one : part.list()) {
    AddedToken token;
    token.id = static_cast<int32_t>(one["id"].integer(0, kMostVocab - 1));
    token.text = one["content"].text();
    token.is_word = one["single_word"].boolean_or(false);
    token.takes_left = one["lstrip"].boolean_or(false);
    token.takes_right = one["rstrip"].boolean_or(false);
    token.is_special = one["special"].boolean_or(false);
    token.is_normalized = one["normalized"].boolean_or(!token.is_special);
    if (!token.text.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<std::pair<std::string, const AddedToken*>>& tokens) : nodes_(1) {
  for (const auto& [text, token] : tokens) {
    if (text.empty()) continue;
    uint32_t at = 0;
    for (const char byte : text) {
      auto& children = nodes_[at].children;
      const auto found = std::ranges::find(children, byte, &std::pair<char, uint32_t>::first);
      if (found != children.end()) {
        at = found->second;
      } else {
        const auto made = static_cast<uint32_t>(nodes_.size());
        children.emplace_back(byte, made);
        nodes_.emplace_back();
        at = made;
      }
    }
    if (nodes_[at].token == nullptr) nodes_[at].token = token;
    begins_[static_cast<uint8_t>(text[0])] = true;
  }
}

const AddedTokenFinder::Node* AddedTokenFinder::child_of(const Node& node, char byte) const {
  const auto found = std::ranges::find(node.children, byte, &std::pair<char, uint32_t>::first);
  return found == node.children.end() ? nullptr : &nodes_[found->second];
}

std::pair<size_t, const AddedToken*> AddedTokenFinder::longest_at(std::string_view text) const {
  std::pair<size_t, const AddedToken*> longest{0, nullptr};
  const Node* node = nodes_.data();
  for (size_t length = 1; length <= text.size(); ++length) {
    node = child_of(*node, text[length - 1]);
    if (node == nullptr) break;
    if (node->token != nullptr) longest = {length, node->token};
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text, const std::function<bool(const AddedToken&)>& is_wanted,
                             const std::function<void(size_t, size_t, const AddedToken*)>& take) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (!begins_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const auto [length, token] = longest_at(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;  // of a token that is not wanted, nothing else is found in it
               // either
    if (!is_wanted(*token)) continue;
    const std::string_view before = text.substr(0, begin), after = text.substr(end);
    if (token->is_word && ((!before.empty() && is_word_character(last_code_point(before).value)) ||
                           (!after.empty() && is_word_character(first_code_point(after).value)))) {
      continue;
    }
    if (token->takes_left) {
      while (begin > done && is_white_space(last_code_point(text.substr(0, begin)).value)) {
        begin -= last_code_point(text.substr(0, begin)).bytes;
      }
      begin = std::max(begin, done);
    }
    if (token->takes_right) {
      while (end < text.size() && is_white_space(first_code_point(text.substr(end)).value)) {
        end += first_code_point(text.substr(end)).bytes;
      }
    }
    if (done < begin) take(done, begin, nullptr);
    take(begin, end, token);
    done = end;
  }
  if (done < text.size()) take(done, text.size(), nullptr);
}

}  // namespace shiftron
