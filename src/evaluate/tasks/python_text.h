// Strings as Python sees them: sequences of code points, with Python's white space, letter case and regular
// expressions. All take and return UTF-8; invalid bytes count as U+FFFD.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/python_space.h"

namespace shiftron::python {

std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view text);
// len(text)
int64_t length(std::string_view text);

// str.strip(), and its halves.
std::string strip(std::string_view text);
std::string strip_left(std::string_view text);
std::string strip_right(std::string_view text);

// str.capitalize(): the first character in title case, the others in lower case.
std::string capitalize(std::string_view text);

// str.lower()
std::string lower(std::string_view text);

// str.replace(from, to); `from` is not empty.
std::string replace(std::string_view text, std::string_view from, std::string_view to);
// str.split(separator); `separator` is not empty.
std::vector<std::string> split(std::string_view text, std::string_view separator);

// len(re.split(r"\s+", text)): white space at either end gives an empty part.
int64_t count_split_by_space(std::string_view text);

// re.sub(pattern, replacement, text), with patterns and replacements in ICU's syntax; "." matches all but \n. For
// Python's \s and \w use kSpaces and kWord inside brackets, because ICU's differ.
std::string substitute(const std::string& pattern, const std::string& replacement, std::string_view text);
// The first group of the first match, or nothing.
std::optional<std::string> first_group(const std::string& pattern, std::string_view text);
// re.findall(pattern, text): for each match its groups, or all of it if the pattern has none.
std::vector<std::vector<std::string>> find_all(const std::string& pattern, std::string_view text);
// Why the pattern is not a regular expression, and at which of its characters; nothing if it is one.
std::optional<std::string> pattern_fault(const std::string& pattern);
inline constexpr const char* kSpaces =
    "\\u0009-\\u000D\\u001C-\\u0020\\u0085\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000";
inline constexpr const char* kWord = "\\p{L}\\p{N}_";

// repr(text): in quotes, with escapes for characters that are not printable.
std::string repr(std::string_view text);
// repr() of a list of texts
std::string repr(const std::vector<std::string>& texts);

// Whether int(text) would give a number, of any length up to Python's limit of 4,300 digits.
bool is_integer(std::string_view text);

}  // namespace shiftron::python
