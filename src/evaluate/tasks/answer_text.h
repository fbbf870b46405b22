// How a generated text is compared with right answers: lm-evaluation-harness's filters of answers, and the options of
// its exact_match. Regular expressions are ICU's, which read Python's.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/enum_names.h"

namespace shiftron {

enum class Side { neither, left, right, both };
// As users write them in task files.
constexpr std::array<const char*, 4> names_of(Side) {
  return {"neither", "left", "right", "both"};
}

// The part of a generated text that is compared.
struct AnswerFilter {
  std::string name = "none";   // in reports
  Side strip = Side::neither;  // where white space is removed
  std::string extract{};       // a regular expression whose match is compared; empty: the whole text
  bool last = false;           // its last match, not its first
};
// A match is its first group that is not empty, or all of it if the expression has no groups; white space at both ends
// is removed. "[invalid]" if nothing matches, or if all of several groups are empty.
std::string filtered_answer(const AnswerFilter& filter, const std::string& generated);

// What a comparison ignores.
struct AnswerComparison {
  bool ignore_ends = true;                               // white space at both ends
  std::vector<std::string> ignored{};                    // matches of these regular expressions, in this order
  bool ignore_case = false, ignore_punctuation = false;  // punctuation: ASCII's
};
bool is_any_of(const std::string& answer, std::span<const std::string> right, const AnswerComparison& comparison);

}  // namespace shiftron
