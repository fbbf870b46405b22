// Classes of characters that the package `tokenizers` uses.
#pragma once

#include <string>

namespace shiftron {

// As Rust's standard library defines them: White_Space; Nd, Nl or No.
bool is_white_space(char32_t code_point);
bool is_numeric(char32_t code_point);
// ASCII punctuation, or P as of Unicode 8, whose tables that package has.
bool is_punctuation(char32_t code_point);
// \w of the regular expressions that find added tokens: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word_character(char32_t code_point);
// Of one character, whatever surrounds it.
std::string lower_case(char32_t code_point);

}  // namespace shiftron
