// Lengths are in code points, as in Python. The order of the steps is part of the rules.
#include "evaluate/tasks/math_answers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

// Thrown if the rules do not apply; the answers are then compared as written.
struct NoForm {};

// The text between the brace that ends `open` and the matching closing brace.
std::optional<std::string> braced(std::string_view text, std::string_view open) {
  if (!text.starts_with(open)) return std::nullopt;
  int depth = 0;
  for (size_t at = open.size() - 1; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return std::string(text.substr(open.size(), at - open.size()));
  }
  return std::nullopt;
}

// Removes a unit after the number: "3\text{ cm}".
std::string without_unit(const std::string& text) {
  const std::vector<std::string> parts = python::split(text, "\\text{ ");
  if (parts.size() > 2) throw NoForm();
  return parts[0];
}

// "x=5" becomes 5; more than two characters before the sign are not a name.
std::string without_name(const std::string& text) {
  const std::vector<std::string> sides = python::split(text, "=");
  return sides.size() == 2 && python::length(sides[0]) <= 2 ? sides[1] : text;
}

std::string with_braced_roots(const std::string& text) {
  const std::vector<std::string> parts = python::split(text, "\\sqrt");
  std::string result = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::u32string part = python::code_points(parts[i]);
    if (part.empty()) throw NoForm();
    result += "\\sqrt";
    result += part[0] == U'{' ? parts[i] : python::utf8(U"{" + part.substr(0, 1) + U"}" + part.substr(1));
  }
  return result;
}

// Adds missing braces: \frac12, \frac1{72}.
std::string with_braced_fractions(const std::string& text) {
  const std::vector<std::string> parts = python::split(text, "\\frac");
  std::string result = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::u32string part = python::code_points(parts[i]);
    if (part.empty()) throw NoForm();
    result += "\\frac";
    if (part[0] == U'{') {
      result += parts[i];
      continue;
    }
    if (part.size() < 2) return text;
    std::u32string fraction = U"{" + part.substr(0, 1) + U"}";
    fraction += part[1] == U'{' ? part.substr(1) : U"{" + part.substr(1, 1) + U"}" + part.substr(2);
    result += python::utf8(fraction);
  }
  return result;
}

// Whether Python's str() of the integer gives the same text.
bool is_plain_integer(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool all =
      !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return all && (digits[0] != '0' || text == "0");
}

// Writes 3/4 as \frac; throws NoForm if it is not a quotient of integers.
std::string with_written_fraction(const std::string& text) {
  const std::vector<std::string> sides = python::split(text, "/");
  if (sides.size() != 2) return text;
  if (!python::is_integer(sides[0]) || !python::is_integer(sides[1])) throw NoForm();
  if (!is_plain_integer(sides[0]) || !is_plain_integer(sides[1])) return text;
  return "\\frac{" + sides[0] + "}{" + sides[1] + "}";
}

std::string canonical(std::string_view answer) {
  constexpr std::pair<const char*, const char*> kBefore[] = {
      {"\n", ""},     {"\\!", ""},     {"\\\\", "\\"},    {"tfrac", "frac"}, {"dfrac", "frac"},
      {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""},
  };
  std::string text(answer);
  for (const auto& [from, to] : kBefore) text = python::replace(text, from, to);
  text = without_unit(text);
  constexpr std::pair<const char*, const char*> kBehind[] = {{"\\%", ""}, {" .", " 0."}, {"{.", "{0."}};
  for (const auto& [from, to] : kBehind) text = python::replace(text, from, to);
  if (text.empty()) return text;
  if (text[0] == '.') text.insert(0, "0");
  text = with_braced_roots(without_name(text));
  text = with_braced_fractions(python::replace(text, " ", ""));
  if (text == "0.5") text = "\\frac{1}{2}";
  return with_written_fraction(text);
}

bool is_letters(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

// Removed from minerva_math's answers, in this order.
const char* const kRemoved[] = {"square",       "ways",
                                "integers",     "dollars",
                                "mph",          "inches",
                                "ft",           "hours",
                                "km",           "units",
                                "\\ldots",      "sue",
                                "points",       "feet",
                                "minutes",      "digits",
                                "cents",        "degrees",
                                "cm",           "gm",
                                "pounds",       "meters",
                                "meals",        "edges",
                                "students",     "childrentickets",
                                "multiples",    "\\text{s}",
                                "\\text{.}",    "\\text{\ns}",
                                "\\text{}^2",   "\\text{}^3",
                                "\\text{\n}",   "\\text{}",
                                "\\mathrm{th}", "^\\circ",
                                "^{\\circ}",    "\\;",
                                ",\\!",         "{,}",
                                "\"",           "\\dots"};

// Applies `change` to the parts of `text` that are not LaTeX commands.
template <typename Change>
std::string outside_of_commands(std::string_view text, const Change& change) {
  std::string result, plain;
  const auto flush = [&] {
    result += change(plain);
    plain.clear();
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (text[at] == '\\' && end < text.size() && is_letters(std::string(1, text[end]))) ++end;
    if (end > at + 1) {
      flush();
      result += text.substr(at, end - at);
    } else {
      plain += text[at];
    }
    at = end;
  }
  flush();
  return result;
}

}  // namespace

std::optional<std::string> boxed_answer(std::string_view solution) {
  constexpr std::string_view kSpaced = "\\boxed ";
  if (const size_t at = solution.rfind(kSpaced); at != std::string_view::npos) {
    const std::string_view rest = solution.substr(at + kSpaced.size());
    return std::string(rest.substr(0, rest.find('$')));
  }
  const size_t at = solution.rfind("\\boxed");
  if (at == std::string_view::npos) return std::nullopt;
  return braced(solution.substr(at), "\\boxed{");
}

std::string dollar_answer(std::string_view generated) {
  const size_t first = generated.find('$'), last = generated.rfind('$');
  return std::string(first == last ? generated : generated.substr(first + 1, last - first - 1));
}

bool is_same_math(std::string_view first, std::string_view second) {
  try {
    return canonical(first) == canonical(second);
  } catch (const NoForm&) {
    return first == second;
  }
}

std::string minerva_answer(std::string_view generated) {
  const std::string text = std::string(generated) + "I hope it is correct.";
  const auto found = python::first_group("Final Answer: The final answer is(.*?). I hope it is correct.", text);
  return found ? python::strip(*found) : "[invalidanswer]";
}

std::string normalized_minerva_answer(std::string_view answer) {
  std::string text = python::split(answer, "=").back();
  const std::string word = std::string("[") + python::kWord + "]";
  for (const std::string removed : kRemoved) {
    if (!is_letters(removed) || text.find(removed) == std::string::npos) continue;
    text = python::substitute(std::string("(?<![\\\\") + python::kWord + "])" + removed + "(?!" + word + ")", "", text);
  }
  constexpr std::pair<const char*, const char*> kReplaced[] = {
      {"an ", ""}, {"a ", ""},       {".$", "$"},           {"\\$", ""},          {"\\ ", ""},
      {" ", ""},   {"mbox", "text"}, {",\\text{and}", ","}, {"\\text{and}", ","}, {"\\text{m}", "\\text{}"},
  };
  for (const auto& [from, to] : kReplaced) text = python::replace(text, from, to);
  for (const std::string removed : kRemoved) {
    const auto without = [&](const std::string& part) { return python::replace(part, removed, ""); };
    text = is_letters(removed) ? outside_of_commands(text, without) : without(text);
  }
  const std::pair<const char*, const char*> kPatterns[] = {
      {".*?\\$(.*?)\\$.*", "\\$$1\\$"},
      {"\\\\text\\{(.*?)\\}", "$1"},
      {"\\\\textbf\\{(.*?)\\}", "$1"},
      {"\\\\overline\\{(.*?)\\}", "$1"},
      {"\\\\boxed\\{(.*)\\}", "$1"},
      {"frac([^{])(.)", "frac{$1}{$2}"},
      {"sqrt(\\[[^\\]]*\\])([\\p{L}\\p{N}_])", "sqrt$1{$2}"},
      {"sqrt(?!\\[)([^{])", "sqrt{$1}"},
  };
  for (const auto& [pattern, replacement] : kPatterns) text = python::substitute(pattern, replacement, text);
  text = python::replace(text, "$", "");
  if (python::first_group("^(-?\\d{1,3}(?:,\\d{3})+)\\z", text)) text = python::replace(text, ",", "");
  return text;
}

}  // namespace shiftron
