// Parts that may still grow are held until the next one is known.
#include "tokenizer/hugging_face/splitter.h"

#include <string>

#include "tokenizer/hugging_face/read_kind.h"

namespace shiftron {

SplitBehaviour read_split_behaviour(const JsonPart& part) {
  struct Entry {
    const char* name;
    SplitBehaviour behaviour;
  };
  static constexpr Entry kBehaviours[] = {{"Isolated", SplitBehaviour::isolated},
                                          {"Removed", SplitBehaviour::removed},
                                          {"MergedWithPrevious", SplitBehaviour::merged_with_previous},
                                          {"MergedWithNext", SplitBehaviour::merged_with_next},
                                          {"Contiguous", SplitBehaviour::contiguous}};
  const std::string name = part.text();
  for (const Entry& entry : kBehaviours) {
    if (name == entry.name) return entry.behaviour;
  }
  part.refuse("\"", printable(name), "\" is unknown");
}

void Splitter::match(size_t begin, size_t end) {
  if (begin > done_) part(done_, begin, is_inverted_);
  part(begin, end, !is_inverted_);
  done_ = end;
}

void Splitter::finish() {
  if (done_ < text_.text.size()) part(done_, text_.text.size(), is_inverted_);
  if (holds_) give(begin_, end_);
  holds_ = false;
}

void Splitter::part(size_t begin, size_t end, bool is_match) {
  const bool follows_match = was_match_;
  was_match_ = is_match;
  switch (behaviour_) {
    case SplitBehaviour::isolated:
      return give(begin, end);
    case SplitBehaviour::removed:
      if (!is_match) give(begin, end);
      return;
    case SplitBehaviour::contiguous:
      // The first part has no predecessor, which counts as no match.
      if (holds_ && is_match == follows_match) {
        end_ = end;
        return;
      }
      return hold(begin, end);
    case SplitBehaviour::merged_with_previous:
      if (holds_ && is_match && !follows_match) {
        end_ = end;
        return;
      }
      return hold(begin, end);
    case SplitBehaviour::merged_with_next:
      // From the right, a match joins what follows it if that is no match.
      if (holds_ && follows_match && !is_match) {
        end_ = end;
        return;
      }
      return hold(begin, end);
  }
}

void Splitter::hold(size_t begin, size_t end) {
  if (holds_) give(begin_, end_);
  begin_ = begin;
  end_ = end;
  holds_ = true;
}

void Splitter::give(size_t begin, size_t end) {
  if (begin == end) return;
  take_({text_.text.substr(begin, end - begin), text_.is_first && begin == 0, text_.continues && begin == 0});
}

}  // namespace shiftron
