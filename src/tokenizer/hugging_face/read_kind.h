// Chooses the kind of a part of tokenizer.json by its "type".
#pragma once

#include <span>
#include <string>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

// Entry: {type, read}. Throws Error(bad_input) for a type that is not in `kinds`.
template <typename Entry, size_t count>
auto read_kind(const Entry (&kinds)[count], const JsonPart& part) {
  const std::string type = part["type"].text();
  std::string known;
  for (const Entry& kind : kinds) {
    if (type == kind.type) return kind.read(part);
    known += (known.empty() ? "" : ", ") + std::string(kind.type);
  }
  part.refuse("the type ", printable(type), " is not supported; these are: ", known);
}

}  // namespace shiftron
