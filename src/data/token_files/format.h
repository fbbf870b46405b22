// The formats of token files that this program reads. A format is a file of its own and a line in format.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_files/token_file.h"

namespace shiftron {

struct TokenFormat {
  const char* name;  // as users write it
  const char* what;  // for people
  // Whether a file, which begins with `begin`, can be in no other format.
  bool (*recognises)(const std::string& path, std::string_view begin);
  // Reads what is said about the tokens. element: for formats that do not say it; others refuse it. Throws
  // Error(bad_input) if a file is missing, cut off or faulty.
  TokenFile (*open)(const std::string& path, std::optional<TokenElement> element);
};

const std::vector<TokenFormat>& token_formats();

// Opens `path` in the format of this name; "" = the format that recognises it. Throws Error(bad_input), with the
// formats that are possible, if none does.
TokenFile open_token_file(const std::string& path, const std::string& format, std::optional<TokenElement> element);

// For readers of text. Throws Error(bad_input) that names the importer if `path`, which begins with `begin`, holds
// tokens, or is named as such files are and holds zero bytes, which texts do not.
void refuse_tokens_as_text(const std::string& path, std::string_view begin);

}  // namespace shiftron
