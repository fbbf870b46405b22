// A value in a JSON file that knows its place there, so that messages about it name the file and the key's path.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/foreign_text.h"

namespace shiftron {

// A view: the document must outlive it. All functions throw Error(bad_input) about a value of another type.
class JsonPart {
 public:
  // file: for messages.
  JsonPart(const nlohmann::json& value, std::string file) : value_(&value), place_(std::move(file)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }  // "tokenizer.json: pre_tokenizer.pretokenizers[1]"
  bool is_null() const { return value_->is_null(); }

  // A missing key is null.
  JsonPart operator[](const char* key) const;
  std::vector<JsonPart> list() const;  // null: none
  std::string text() const;
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most) const;
  double real() const;
  // With a value for null.
  std::string text_or(const std::string& absent) const { return is_null() ? absent : text(); }
  bool boolean_or(bool absent) const { return is_null() ? absent : boolean(); }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw_bad_input(place_, ": ", parts...);
  }

 private:
  static const nlohmann::json& null();
  JsonPart at(const nlohmann::json& value, const std::string& step, bool is_key) const;
  const nlohmann::json* value_;
  std::string place_;
  bool is_top_ = true;
};

}  // namespace shiftron
