// Checks of JSON fields and their messages.
#include "checkpoint/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/check.h"
#include "core/json_outline.h"
#include "core/json_reason.h"

namespace shiftron {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(message, ExitCode::no_checkpoint);
}

// A value for messages, shortened.
std::string shown(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

// Also refuses duplicate keys.
class StrictOutline : public JsonOutline {
 public:
  explicit StrictOutline(const std::string& source)
      : JsonOutline(kDeepestJson, [&] { refuse(source + ": nested deeper than " + std::to_string(kDeepestJson)); }),
        source_(source) {}
  bool start_object(std::size_t members) override {
    keys_.emplace_back();
    return JsonOutline::start_object(members);
  }
  bool end_object() override {
    keys_.pop_back();
    return JsonOutline::end_object();
  }
  bool key(string_t& text) override {
    if (!keys_.back().insert(text).second) refuse(source_ + ": key " + shown(text) + " appears twice in one object");
    return true;
  }

 private:
  const std::string& source_;
  std::vector<std::set<std::string>> keys_;  // of the open objects
};

}  // namespace

nlohmann::json parse_strict_json(const std::string& text, const std::string& source) {
  StrictOutline outline(source);
  nlohmann::json::sax_parse(text, &outline);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    refuse(source + ": not valid JSON: " + json_reason(error));
  }
}

bool parse_hex64(std::string_view text, uint64_t& value) {
  if (text.size() != 16) return false;
  value = 0;
  for (const char digit : text) {
    const bool decimal = digit >= '0' && digit <= '9';
    if (!decimal && !(digit >= 'a' && digit <= 'f')) return false;
    value = value << 4 | static_cast<uint64_t>(decimal ? digit - '0' : digit - 'a' + 10);
  }
  return true;
}

JsonFields::JsonFields(const nlohmann::json& object, const std::string& source, const std::string& place,
                       std::initializer_list<const char*> keys)
    : object_(object), source_(source), place_(place) {
  if (!object.is_object()) refuse(source + ": " + place + " is " + shown(object) + ", must be an object");
  for (const char* key : keys) {
    if (!object.contains(key)) fail(key, "is missing");
  }
  if (object.size() == keys.size()) return;
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) fail(key, "is not known to this version");
  }
}

void JsonFields::fail(const std::string& key, const std::string& fault) const {
  refuse(source_ + ": " + (place_.empty() ? "" : place_ + ".") + key + " " + fault);
}

uint64_t JsonFields::number_of(const nlohmann::json& value, const std::string& key, uint64_t least,
                               uint64_t most) const {
  const uint64_t number = value.is_number_unsigned() ? value.get<uint64_t>() : 0;
  if (!value.is_number_unsigned() || number < least || number > most) {
    fail(key, "is " + shown(value) + ", must be a whole number from " + std::to_string(least) + " to " +
                  std::to_string(most));
  }
  return number;
}

uint64_t JsonFields::number(const char* key, uint64_t least, uint64_t most) const {
  return number_of(object_.at(key), key, least, most);
}

const std::string& JsonFields::text(const char* key, size_t longest) const {
  const nlohmann::json& value = object_.at(key);
  if (!value.is_string() || value.get_ref<const std::string&>().size() > longest) {
    fail(key, "is " + shown(value) + ", must be a string of at most " + std::to_string(longest) + " bytes");
  }
  return value.get_ref<const std::string&>();
}

uint64_t JsonFields::hex64_of(const nlohmann::json& value, const std::string& key) const {
  uint64_t number = 0;
  if (!value.is_string() || !parse_hex64(value.get_ref<const std::string&>(), number)) {
    fail(key, "is " + shown(value) + ", must be 16 hexadecimal digits");
  }
  return number;
}

const nlohmann::json& JsonFields::array(const char* key) const {
  if (!object_.at(key).is_array()) fail(key, "is " + shown(object_.at(key)) + ", must be a list");
  return object_.at(key);
}

const nlohmann::json& JsonFields::object(const char* key) const {
  if (!object_.at(key).is_object()) fail(key, "is " + shown(object_.at(key)) + ", must be an object");
  return object_.at(key);
}

}  // namespace shiftron
