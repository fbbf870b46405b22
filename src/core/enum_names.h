// Enumerations as text: an enumeration with a `names_of(Enum)` next to it converts to and from strings.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace shiftron {

// names_of(value) returns an array of texts, indexed by the enumerator's number; found by argument-dependent lookup.
template <typename Enum>
concept NamedEnum = requires(Enum value) {
  names_of(value).size();
};

// The text of `value` as users write it.
template <NamedEnum Enum>
std::string to_string(Enum value) {
  return std::string(names_of(value).at(static_cast<std::size_t>(value)));
}

// The value whose text is `text`, or nothing.
template <NamedEnum Enum>
std::optional<Enum> from_string(std::string_view text) {
  const auto names = names_of(Enum{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace shiftron
