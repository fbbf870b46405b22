// Remembers the tokens of words: most of a text consists of few words, and a model takes far longer than a lookup.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/hash.h"

namespace shiftron {

// For one thread and one tokenizer. Takes at most about 15 MiB.
class KnownWords {
 public:
  static constexpr size_t kLongest = 64;  // bytes of a word that is kept

  // most: number of words, of 8 tokens on average. When it is full, it forgets all.
  explicit KnownWords(size_t most = size_t{1} << 16) : most_(most) {}

  size_t size() const { return places_.size(); }
  // Its tokens, valid until the next add(); nothing if the word is not known.
  std::optional<std::span<const int32_t>> find(std::string_view word) const {
    const auto at = places_.find(word);
    if (at == places_.end()) return std::nullopt;
    return std::span(tokens_).subspan(at->second.first, at->second.count);
  }
  // Adds a word that is not known.
  void add(std::string_view word, std::span<const int32_t> tokens) {
    if (word.size() > kLongest) return;
    if (places_.size() == most_ || tokens_.size() + tokens.size() > 8 * most_) {
      places_.clear();
      tokens_.clear();
    }
    places_.emplace(word, Place{tokens_.size(), tokens.size()});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }

 private:
  struct Place {
    size_t first, count;  // in tokens_
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return xxh3_64(word); }
  };
  size_t most_;
  std::unordered_map<std::string, Place, Hash, std::equal_to<>> places_;
  std::vector<int32_t> tokens_;
};

}  // namespace shiftron
