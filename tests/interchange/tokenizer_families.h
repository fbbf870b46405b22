// Shared by the tests of GGUF vocabularies: tokenizer.json of the families in tests/tokenizer/cases.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/file.h"

namespace shiftron {

inline nlohmann::json stored_case(const std::string& name) {
  return nlohmann::json::parse(
      read_file(std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/" + name + ".json"));
}

inline nlohmann::json family_file(const std::string& name) {
  return stored_case(name)["tokenizer"];
}

inline nlohmann::json added_token(size_t id, const std::string& text, bool special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace shiftron
