// Files of nothing but tokens: nanoGPT's .bin, and OLMo-core's .npy, which have no header.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_files/token_file.h"

namespace shiftron {

bool is_raw(const std::string& path, std::string_view begin);  // never: nothing marks them
TokenFile open_raw(const std::string& path, std::optional<TokenElement> element);

}  // namespace shiftron
