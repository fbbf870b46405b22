// Only the file's size says how many tokens there are.
#include "data/token_files/raw_tokens.h"

#include "core/check.h"
#include "core/file.h"

namespace shiftron {

bool is_raw(const std::string&, std::string_view) {
  return false;
}

TokenFile open_raw(const std::string& path, std::optional<TokenElement> element) {
  if (!element) throw_bad_input("--format raw needs --dtype, because ", path, " does not say how tokens are stored");
  const uint64_t bytes = FileDescriptor::open_for_reading(path).size();
  if (bytes % size_of(*element) != 0) {
    throw_bad_input(path, " has ", bytes, " bytes, not a multiple of the ", size_of(*element), " of --dtype ",
                    to_string(*element), "; give another --dtype");
  }
  return {.path = path, .format = "", .element = *element, .tokens = bytes / size_of(*element), .files = {path}};
}

}  // namespace shiftron
