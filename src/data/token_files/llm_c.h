// llm.c's token files: 256 i32, of which the first are a magic number, a version and the number of tokens, then the
// tokens. Source: llm.c, dev/data/data_common.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_files/token_file.h"

namespace shiftron {

bool is_llm_c(const std::string& path, std::string_view begin);
TokenFile open_llm_c(const std::string& path, std::optional<TokenElement> element);

}  // namespace shiftron
