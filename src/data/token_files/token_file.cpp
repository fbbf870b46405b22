// What formats refuse.
#include "data/token_files/token_file.h"

#include "core/check.h"

namespace shiftron {

void refuse_element(const std::string& path, const char* format, std::optional<TokenElement> element) {
  if (!element) return;
  throw_bad_input("--dtype ", to_string(*element), " is only for --format raw, but ", path, " is in the format ",
                  format, ", which states the type itself; omit it");
}

}  // namespace shiftron
