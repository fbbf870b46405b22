// Characters that Unicode 15, 15.1 and 16 added: the package `tokenizers` 0.23 knows them, PCRE2 10.42 does not.
#pragma once

#include <string>
#include <string_view>

namespace shiftron {

// Of valid UTF-8.
bool has_recent_characters(std::string_view text);

// The general category of such a character; "" for others.
std::string_view recent_category(char32_t character);

// Those of the general categories whose names begin with `category` ("L", "Lu"), for a set of PCRE2:
// "\\x{897}\\x{…}-\\x{…}".
std::string recent_characters(std::string_view category);
// Likewise, of a script by its name in lower case: Han, Hiragana or Katakana; "" for others.
std::string recent_script_characters(std::string_view script);

}  // namespace shiftron
