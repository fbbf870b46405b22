// Words of PTX's text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/ptx.h"

namespace shiftron::machine::ptx {

std::string without_comments(const std::string& text);
std::string trimmed(const std::string& text);
std::vector<std::string> split(const std::string& text, char by);
// The parts between commas; commas within brackets of any kind do not count.
std::vector<std::string> listed(const std::string& text);

// Nothing where the word is no such thing.
std::optional<Type> type_of(const std::string& word);        // "u32"
std::optional<Special> special_of(const std::string& word);  // "%tid.x"
std::optional<int64_t> number_of(const std::string& word);   // 4.5: -3, 0x5410U, 0f3F800000, 0dBFF0000000000000
template <typename Value>
std::optional<Value> named(const std::string& word, const std::vector<std::pair<const char*, Value>>& names) {
  for (const auto& [name, value] : names) {
    if (word == name) return value;
  }
  return std::nullopt;
}

}  // namespace shiftron::machine::ptx
