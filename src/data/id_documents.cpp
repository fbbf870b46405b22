// {"ids": […], "targets": […]}.
#include "data/id_documents.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/json_reason.h"
#include "data/json_line.h"

namespace shiftron {
namespace {

constexpr char kIds[] = "ids", kTargets[] = "targets";

nlohmann::json parsed(std::string_view value, const std::string& where) {
  try {
    return nlohmann::json::parse(value);
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input(where, ": not JSON: ", printable(json_reason(error)));
  }
}

// `null_value`: what null means; if nothing, null is refused.
std::vector<int32_t> numbers(std::string_view text, const char* key, std::optional<int32_t> null_value,
                             const std::string& where) {
  const nlohmann::json list = parsed(text, where);
  if (!list.is_array()) {
    throw_bad_input(where, ": the value of \"", key, "\" is a ", list.type_name(), ", not a list of whole numbers");
  }
  std::vector<int32_t> values;
  values.reserve(list.size());
  for (const nlohmann::json& value : list) {
    if (value.is_null() && null_value) {
      values.push_back(*null_value);
      continue;
    }
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX;
    if (!fits) {
      throw_bad_input(where, ": \"", key, "\" at position ", values.size(), " is ",
                      value.is_structured() ? std::string(value.type_name()) : printable(value.dump()),
                      ", not a whole number from 0", null_value ? " or null (not counted)" : "");
    }
    values.push_back(value.get<int32_t>());
  }
  return values;
}

}  // namespace

TokenDocument parse_ids(std::string_view line, const std::string& where) {
  const JsonLine object(line, where);
  const auto ids = object.find(kIds);
  if (!ids) {
    throw_bad_input(where, ": no key \"", kIds, "\"; --ids reads lines of {\"ids\": [...]}; leave --ids out for text");
  }
  TokenDocument document;
  document.where = where;
  document.ids = numbers(*ids, kIds, std::nullopt, where);
  if (const auto targets = object.find(kTargets)) {
    document.targets = numbers(*targets, kTargets, kNotCounted, where);
    if (document.targets.size() != document.ids.size()) {
      throw_bad_input(where, ": ", document.targets.size(), " targets for ", document.ids.size(),
                      " ids; give one target for each id, or null if it is not counted");
    }
  }
  return document;
}

}  // namespace shiftron
