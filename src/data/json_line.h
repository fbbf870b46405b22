// A line of JSONL: finds the values of some keys, and reads strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shiftron {

// The members of the object in a line. Values are checked only as far as needed to find where they end, so a key that
// is not asked for may hold NaN, Infinity, unpaired surrogates, control characters or bytes that are not UTF-8. Refers
// to the line.
class JsonLine {
 public:
  // `where` names the line in messages. Throws Error(bad_input) unless the line holds one object and nothing else.
  JsonLine(std::string_view line, std::string where);

  // The value as written; of a key that occurs several times, the last. Nothing if there is none.
  std::optional<std::string_view> find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }
  // The keys, for a message.
  std::string keys() const;

  // The string that is the key's value, which must exist. Bytes that are not UTF-8 are kept. A surrogate without its
  // partner becomes U+FFFD, and is added to `replaced`. Throws Error(bad_input) for another type and for bad escapes.
  std::string text(std::string_view key, uint64_t& replaced) const;
  // The values in the list that is the key's value, which must exist, as written. Throws Error(bad_input) for another
  // type.
  std::vector<std::string_view> elements(std::string_view key) const;

 private:
  struct Member {
    std::string_view key;  // with its escapes, without quotes
    std::string_view value;
  };
  [[noreturn]] void throw_fault(size_t at, const std::string& reason) const;
  void skip_blanks(size_t& at) const;
  std::string_view skip_string(size_t& at) const;
  void skip_word(size_t& at) const;
  void skip_value(size_t& at) const;
  void append_unescaped(std::string& text, std::string_view string, uint64_t& replaced) const;
  size_t append_escape(std::string& text, std::string_view string, size_t at, uint64_t& replaced) const;
  std::string decoded_key(std::string_view key) const;

  std::string_view line_;
  std::string where_;
  std::vector<Member> members_;
};

inline bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// "string", "number", "list" …, by how a value begins.
const char* json_type_name(std::string_view value);

}  // namespace shiftron
