// Text in lines of limited width.
#pragma once

#include <cstddef>
#include <string>

namespace shiftron {

inline constexpr size_t kTextWidth = 100;  // of help and of what a run prints

// Columns that a text of UTF-8 takes: one for each character.
size_t columns(const std::string& text);

// `text`, whose first line begins at column `indent`, broken at blanks so that no line exceeds kTextWidth if its words
// allow it. Later lines are indented to the same column. Ends with a line break.
std::string wrapped(const std::string& text, size_t indent);

}  // namespace shiftron
