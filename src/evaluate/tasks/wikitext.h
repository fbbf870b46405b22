// WikiText as it was before tokenization.
#pragma once

#include <string>
#include <string_view>

namespace shiftron {

// Removes the spaces and marks that WikiText put around punctuation, numbers, brackets and headings.
std::string detokenized_wikitext(std::string_view page);

}  // namespace shiftron
