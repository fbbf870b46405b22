// "added_tokens" of tokenizer.json: tokens that are found in a text before it is cut into words.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

struct AddedToken {
  int32_t id = 0;
  std::string text{};
  bool is_word = false;        // found only where it does not touch other word characters
  bool takes_left = false;     // and the white space before it
  bool takes_right = false;    // and after it
  bool is_normalized = false;  // it is looked for in the normalised text, after
                               // being normalised itself
  bool is_special = false;     // not text: decoding drops it
};

// Throws Error(bad_input).
std::vector<AddedToken> read_added_tokens(const JsonPart& part);

// Finds several tokens in a text; of those that begin at the same place, the longest. Read-only after construction.
class AddedTokenFinder {
 public:
  // Each with what it looks like in the text.
  explicit AddedTokenFinder(const std::vector<std::pair<std::string, const AddedToken*>>& tokens);
  bool is_empty() const { return nodes_.size() == 1; }
  // The text's parts from left to right: tokens, and what is between them (token null). Tokens for which `is_wanted` is
  // false are text.
  void split(std::string_view text, const std::function<bool(const AddedToken&)>& is_wanted,
             const std::function<void(size_t begin, size_t end, const AddedToken* token)>& take) const;

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> children{};
    const AddedToken* token = nullptr;
  };
  const Node* child_of(const Node& node, char byte) const;
  std::pair<size_t, const AddedToken*> longest_at(std::string_view text) const;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};  // whether a token begins with the byte
};

}  // namespace shiftron
