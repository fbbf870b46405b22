// When two answers to a MATH problem count as the same: rules on strings alone, those of hendrycks_math in the harness,
// and the part of minerva_math's that needs no computer algebra.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shiftron {

// The answer that a solution boxes: behind the last "\boxed " up to a dollar sign, else inside of the last \boxed{…}.
// Nothing where there is none.
std::optional<std::string> boxed_answer(std::string_view solution);

// What a generated text answers: between its first and last dollar sign, else all of it.
std::string dollar_answer(std::string_view generated);

// Whether both are the same once their LaTeX is made alike; where that fails for either, whether they are the same as
// they stand.
bool is_same_math(std::string_view first, std::string_view second);

// Behind minerva_math's sentence of the final answer, or "[invalidanswer]".
std::string minerva_answer(std::string_view generated);
// Without units, spaces, text boxes and shorthand.
std::string normalized_minerva_answer(std::string_view answer);

}  // namespace shiftron
