// UTF-8 according to the table of well-formed sequences in the Unicode standard (table 3-7).
#include "core/foreign_text.h"

#include <algorithm>
#include <cstdint>

namespace shiftron {
namespace {

constexpr char kDigits[] = "0123456789ABCDEF";

bool continues(char letter) {
  return (static_cast<uint8_t>(letter) & 0xC0) == 0x80;
}

// The code point of a valid character.
uint32_t code_point(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first;
  uint32_t number = first & (0x7Fu >> character.size());
  for (const char letter : character.substr(1)) number = number << 6 | (static_cast<uint8_t>(letter) & 0x3F);
  return number;
}

bool steers(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// Calls `plain` with each character that can be shown unchanged, `other` with each of the rest: a character that
// controls a terminal, or a byte that belongs to no character.
template <typename Plain, typename Other>
void for_each_character(std::string_view text, const Plain& plain, const Other& other) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(1, length));
    if (length == 0 || steers(code_point(character))) {
      other(character);
    } else {
      plain(character);
    }
    text.remove_prefix(character.size());
  }
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string shown;
  for_each_character(
      text, [&](std::string_view character) { shown += character; },
      [&](std::string_view character) {
        for (const char letter : character) {
          const auto byte = static_cast<uint8_t>(letter);
          if (kept.find(letter) != std::string_view::npos) {
            shown += letter;
          } else {
            shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
          }
        }
      });
  return shown;
}

// Number of bytes at the end of `text` that form an incomplete character.
size_t begun(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size) {
    const char letter = text[text.size() - size];
    if (continues(letter)) continue;
    const auto first = static_cast<uint8_t>(letter);
    const size_t whole = first < 0xC2 || first > 0xF4 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return whole > size ? size : 0;
  }
  return 0;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  const uint8_t second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return continues(1) ? 2 : 0;
  const uint8_t lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (second < lowest || second > highest || !continues(2)) return 0;
  if (first < 0xF0) return 3;
  return continues(3) ? 4 : 0;
}

std::string printable_lines(std::string_view text) {
  return escaped(text, "\n\t");
}

std::string printable_line(std::string_view text) {
  return escaped(text, "");
}

std::string printable_value(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string value;
  for (const char letter : text) value += letter == '\n' ? std::string("\n    ") : std::string(1, letter);
  return printable_lines(value);
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 400;
  if (text.size() <= kLongest) return printable_line(text);
  size_t end = kLongest;
  while (end < text.size() && end < kLongest + 3 && continues(text[end])) ++end;  // to the end of a character
  return printable_line(text.substr(0, end)) + "… (" + std::to_string(text.size()) + " bytes)";
}

std::string markdown_cell(std::string_view text) {
  constexpr std::string_view kMarkup = "\\`*[]<>|&~$";
  std::string cell;
  for (const char letter : text) {
    if (kMarkup.find(letter) != std::string_view::npos) cell += '\\';
    cell += letter;
  }
  return printable_line(cell);
}

std::string markdown_code(std::string_view text) {
  std::string code;
  size_t run = 0, longest = 0;
  for (const char letter : printable_line(text)) {
    if (letter == '|') code += '\\';  // which would end the table's cell, even within code
    code += letter;
    run = letter == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  const bool is_apart = longest > 0 || code.empty();
  return fence + (is_apart ? " " : "") + code + (is_apart ? " " : "") + fence;
}

std::string xml_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else if (static_cast<unsigned char>(c) >= ' ') {  // XML allows no others
      result += c;
    }
  }
  return result;
}

std::string printable_json(std::string_view json) {
  std::string shown;
  for_each_character(
      json, [&](std::string_view character) { shown += character; },
      [&](std::string_view character) {
        if (character == "\n" || utf8_length(character) == 0) {  // between values; invalid JSON
          shown += character;
          return;
        }
        const uint32_t code = code_point(character);
        shown += "\\u";
        for (int shift = 12; shift >= 0; shift -= 4) shown += kDigits[code >> shift & 15];
      });
  return shown;
}

PrintableBuffer::~PrintableBuffer() {
  pass_on(held_.size());
}

bool PrintableBuffer::pass_on(size_t size) {
  const std::string shown = printable_lines(std::string_view(held_).substr(0, size));
  held_.erase(0, size);
  const auto length = static_cast<std::streamsize>(shown.size());
  return out_->sputn(shown.data(), length) == length;
}

std::streamsize PrintableBuffer::xsputn(const char* text, std::streamsize size) {
  held_.append(text, static_cast<size_t>(size));
  return pass_on(held_.size() - begun(held_)) ? size : 0;
}

PrintableBuffer::int_type PrintableBuffer::overflow(int_type letter) {
  if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
  const char one = traits_type::to_char_type(letter);
  return xsputn(&one, 1) == 1 ? letter : traits_type::eof();
}

}  // namespace shiftron
