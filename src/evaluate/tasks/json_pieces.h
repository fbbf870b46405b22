// Replacements in JSON text before it is parsed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shiftron {

struct JsonPiece {
  size_t length = 0;  // 0: none
  std::optional<std::string> instead{};
};

// Replaces pieces of `json` outside of strings. piece(rest) returns the length of the piece at the start of `rest`, and
// its replacement.
template <typename Piece>
std::string with_pieces_replaced(std::string_view json, const Piece& piece) {
  std::string text;
  size_t taken = 0;
  bool quoted = false;
  for (size_t at = 0; at < json.size(); ++at) {
    if (json[at] == '"') {
      quoted = !quoted;
    } else if (quoted) {
      if (json[at] == '\\') ++at;
    } else if (const JsonPiece found = piece(json.substr(at)); found.length > 0) {
      if (found.instead) {
        text.append(json.substr(taken, at - taken)).append(*found.instead);
        taken = at + found.length;
      }
      at += found.length - 1;
    }
  }
  return text.append(json.substr(taken));
}

}  // namespace shiftron
