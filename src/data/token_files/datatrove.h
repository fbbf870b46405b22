// datatrove's tokenized files, which nanotron reads: NAME.ds with tokens, NAME.ds.index with the end of each document
// (u64, in tokens), NAME.ds.metadata, and with masks NAME.ds.loss (a byte for each token). Source: datatrove,
// src/datatrove/pipeline/tokens/tokenizer.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_files/token_file.h"

namespace shiftron {

bool is_datatrove(const std::string& path, std::string_view begin);
TokenFile open_datatrove(const std::string& path, std::optional<TokenElement> element);

}  // namespace shiftron
