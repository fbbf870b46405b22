// What a pre-tokenizer does with the places that it finds in a text.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "tokenizer/hugging_face/json_part.h"
#include "tokenizer/hugging_face/text_piece.h"

namespace shiftron {

// Isolated: a match is a piece of its own. Contiguous: adjacent matches are one piece.
enum class SplitBehaviour { isolated, removed, merged_with_previous, merged_with_next, contiguous };

SplitBehaviour read_split_behaviour(const JsonPart& part);

// Gets the matches of one text from left to right and gives its pieces to `take`.
class Splitter {
 public:
  // is_inverted: what is between the matches counts as a match, and vice versa.
  Splitter(const TextPiece& text, SplitBehaviour behaviour, bool is_inverted, const TakePiece& take)
      : text_(text), behaviour_(behaviour), is_inverted_(is_inverted), take_(take) {}
  void match(size_t begin, size_t end);
  void finish();  // after the last match

 private:
  void part(size_t begin, size_t end, bool is_match);
  void hold(size_t begin, size_t end);  // gives what was held before
  void give(size_t begin, size_t end);
  const TextPiece& text_;
  SplitBehaviour behaviour_;
  bool is_inverted_;
  const TakePiece& take_;
  size_t done_ = 0;             // up to here, parts are known
  size_t begin_ = 0, end_ = 0;  // held
  bool holds_ = false;
  bool was_match_ = false;  // the part before
};

}  // namespace shiftron
