// Regular expressions of the package `tokenizers`, which uses Oniguruma with Ruby's syntax, in the syntax of PCRE2.
#pragma once

#include <string>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

// For PCRE2 with UTF, UCP, MULTILINE and line feeds as the only line ends. Groups no longer capture. What the two call
// by the same name but define otherwise is spelled out: \s, \w, \b, \h, \v, scripts, nested and intersected sets,
// quantifiers after {n,m}. Throws Error(bad_input), naming `where`, for what has no translation: back references, \G,
// \K, \X, (?x), conditions and calls of groups. knows_recent: the sets include has_recent_characters(), which makes
// them slower.
std::string translate_pattern(const std::string& pattern, const JsonPart& where, bool knows_recent);

}  // namespace shiftron
