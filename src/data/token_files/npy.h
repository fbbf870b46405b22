// NumPy's .npy with a one-dimensional array: tokens, or a mask. Source: numpy/lib/format.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_files/token_file.h"

namespace shiftron {

bool is_npy(const std::string& path, std::string_view begin);
TokenFile open_npy(const std::string& path, std::optional<TokenElement> element);
// A mask for so many tokens: bool, u8 or i8. Throws Error(bad_input).
TokenMask open_mask(const std::string& path, uint64_t tokens);

}  // namespace shiftron
