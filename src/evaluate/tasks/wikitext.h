// WikiText as it was before it was cut into tokens.
#pragma once

#include <string>
#include <string_view>

namespace shiftron {

// Takes out the spaces and marks that WikiText put around punctuation, numbers, brackets and headings.
std::string detokenized_wikitext(std::string_view page);

}  // namespace shiftron
