// Filters and comparison, in the harness's order of steps.
#include "evaluate/tasks/answer_text.h"

#include <algorithm>

#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

constexpr const char* kNoMatch = "[invalid]";
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";  // Python's string.punctuation

using Texts = std::vector<std::string>;

// The harness compares numpy's arrays, in which NUL at the end of a text is padding.
void drop_padding(Texts& texts) {
  for (std::string& text : texts) text.erase(text.find_last_not_of('\0') + 1);
}

// numpy keeps the array's width, so that texts that become longer ("İ") lose their ends.
void lower_all(Texts& texts) {
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, python::code_points(text).size());
  for (std::string& text : texts) text = python::utf8(python::code_points(python::lower(text)).substr(0, width));
}

Texts compared_parts(Texts texts, const AnswerComparison& comparison) {
  if (comparison.ignore_ends) {
    for (std::string& text : texts) text = python::strip(text);
  }
  for (const std::string& pattern : comparison.ignored) {
    for (std::string& text : texts) text = python::substitute(pattern, "", text);
    drop_padding(texts);
  }
  drop_padding(texts);
  if (comparison.ignore_case) lower_all(texts);
  if (comparison.ignore_punctuation) {
    for (std::string& text : texts) {
      std::erase_if(text, [](char c) { return kPunctuation.find(c) != std::string_view::npos; });
    }
    drop_padding(texts);
  }
  return texts;
}

}  // namespace

std::string filtered_answer(const AnswerFilter& filter, const std::string& generated) {
  std::string text = generated;
  if (filter.strip == Side::left || filter.strip == Side::both) text = python::strip_left(text);
  if (filter.strip == Side::right || filter.strip == Side::both) text = python::strip_right(text);
  if (filter.extract.empty()) return text;
  const std::vector<Texts> found = python::find_all(filter.extract, text);
  if (found.empty()) return kNoMatch;
  const Texts& groups = filter.last ? found.back() : found.front();
  if (groups.size() == 1) return python::strip(groups[0]);
  const auto taken = std::ranges::find_if(groups, [](const std::string& group) { return !group.empty(); });
  return taken == groups.end() ? kNoMatch : python::strip(*taken);
}

bool is_any_of(const std::string& answer, std::span<const std::string> right, const AnswerComparison& comparison) {
  const std::string part = compared_parts({answer}, comparison)[0];
  const Texts parts = compared_parts({right.begin(), right.end()}, comparison);
  return std::ranges::find(parts, part) != parts.end();
}

}  // namespace shiftron
