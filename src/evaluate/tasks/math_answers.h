// When two answers to a MATH problem count as the same. The rules work on strings only: those of hendrycks_math in the
// harness, and the part of minerva_math's rules that needs no computer algebra.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shiftron {

// The boxed answer of a solution: after the last "\boxed " up to a dollar sign, otherwise inside the last \boxed{…}.
// Nothing if there is none.
std::optional<std::string> boxed_answer(std::string_view solution);

// The answer in a generated text: between its first and last dollar sign, otherwise the whole text.
std::string dollar_answer(std::string_view generated);

// Whether both are equal after their LaTeX is normalized; if that fails for either, whether they are equal as written.
bool is_same_math(std::string_view first, std::string_view second);

// The answer in minerva_math's sentence "Final Answer: …", or "[invalidanswer]".
std::string minerva_answer(std::string_view generated);
// Removes units, spaces, text boxes and shorthand.
std::string normalized_minerva_answer(std::string_view answer);

}  // namespace shiftron
