// Chooses the kind of a part of tokenizer.json by its "type".
#pragma once

#include <memory>
#include <string>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

// An entry of a table of kinds. Options: what a kind needs in addition to its part of the file.
template <typename Result, typename... Options>
struct PartKind {
  const char* type;
  Result (*read)(const JsonPart&, const Options&...);
};

// PartKind::read of a class that is constructed from its part.
template <typename Interface, typename Kind, typename... Options>
std::unique_ptr<Interface> make_part(const JsonPart& part, const Options&... options) {
  return std::make_unique<Kind>(part, options...);
}

// Throws Error(bad_input) for a type that is not in `kinds`.
template <typename Result, typename... Options, size_t count>
Result read_kind(const PartKind<Result, Options...> (&kinds)[count], const JsonPart& part, const std::string& type,
                 const Options&... options) {
  std::string known;
  for (const PartKind<Result, Options...>& kind : kinds) {
    if (type == kind.type) return kind.read(part, options...);
    known += (known.empty() ? "" : ", ") + std::string(kind.type);
  }
  part.refuse("the type ", printable(type), " is not supported; these are: ", known);
}

template <typename Result, size_t count>
Result read_kind(const PartKind<Result> (&kinds)[count], const JsonPart& part) {
  return read_kind(kinds, part, part["type"].text());
}

}  // namespace shiftron
