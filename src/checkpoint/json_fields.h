// Strict reading of JSON: bounded depth, no key twice, exactly the expected keys, every number and text in bounds.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace shiftron {

inline constexpr int kDeepestJson = 32;  // nesting of lists and objects

// Throws Error(no_checkpoint) that begins with `source`.
nlohmann::json parse_strict_json(const std::string& text, const std::string& source);

// The fields of one JSON object. Every fault throws Error(no_checkpoint): "manifest.json: boxes[3].bytes is …".
class JsonFields {
 public:
  // `object` must have exactly `keys`. `place` names it in messages: "" at the top, otherwise "boxes[3]".
  JsonFields(const nlohmann::json& object, const std::string& source, const std::string& place,
             std::initializer_list<const char*> keys);

  uint64_t number(const char* key, uint64_t least, uint64_t most) const;
  const std::string& text(const char* key, size_t longest) const;
  const nlohmann::json& array(const char* key) const;
  const nlohmann::json& object(const char* key) const;
  // One whole number of an array, like number().
  uint64_t number_of(const nlohmann::json& value, const std::string& key, uint64_t least, uint64_t most) const;
  uint64_t hex64_of(const nlohmann::json& value, const std::string& key) const;
  [[noreturn]] void fail(const std::string& key, const std::string& fault) const;

 private:
  const nlohmann::json& object_;
  const std::string& source_;
  std::string place_;
};

// Exactly 16 lower-case hexadecimal digits; false otherwise.
bool parse_hex64(std::string_view text, uint64_t& value);

}  // namespace shiftron
