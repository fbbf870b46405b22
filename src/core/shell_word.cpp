// Quotes of POSIX shells, in which only the quote itself is special.
#include "core/shell_word.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "core/foreign_text.h"

namespace shiftron {

namespace {

// For text that a terminal would not show unchanged.
std::string escaped_word(const std::string& text) {
  std::string word = "$'";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= ' ' && byte < 0x7F) {
      word += letter == '\'' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
    } else {
      word += '\\';
      for (const int shift : {6, 3, 0}) word += static_cast<char>('0' + (byte >> shift & 7));
    }
  }
  return word + "'";
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "_@%+=:,./-";
  const bool is_plain = std::ranges::all_of(text, [&](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || kPlain.find(letter) != std::string_view::npos;
  });
  if (is_plain && !text.empty()) return text;
  if (printable_line(text) != text) return escaped_word(text);
  std::string word = "'";
  for (const char letter : text) word += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return word + "'";
}

std::string unpack_command(const std::string& packer, const std::string& ending, const std::string& path) {
  std::filesystem::path unpacked = path;
  const bool has_ending = unpacked.extension() == ending;
  std::error_code error;
  if (has_ending && !std::filesystem::is_symlink(path, error)) return packer + " " + shell_word(path);
  if (has_ending) unpacked.replace_extension();
  unpacked.replace_extension(".unpacked" + unpacked.extension().string());  // a new file: `>` would overwrite
  return packer + " < " + shell_word(path) + " > " + shell_word(unpacked);
}

}  // namespace shiftron
