// The frame of choices as JSON: {"device", "library", KEY: [one object a shape]}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/json_reason.h"
#include "kernels/choices.h"

namespace shiftron {

// `json_of(shape, choice)` is one object.
template <typename Shape, typename Choice, typename JsonOf>
std::string choices_to_json(const Choices<Shape, Choice>& choices, const char* key, JsonOf json_of) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [shape, choice] : choices.of) list.push_back(json_of(shape, choice));
  return nlohmann::ordered_json{{"device", choices.device}, {"library", choices.library}, {key, list}}.dump(1);
}

// `read(object)` returns a pair of shape and choice. Anything that it throws, and a duplicate shape, becomes
// Error(bad_input) that begins with `source`.
template <typename Shape, typename Choice, typename Read>
Choices<Shape, Choice> choices_from_json(const std::string& text, const std::string& source, const char* key, Read read) {
  using Json = nlohmann::ordered_json;
  try {
    const Json json = Json::parse(text);
    Choices<Shape, Choice> choices{.device = json.at("device"), .library = json.at("library"), .of = {}};
    for (const Json& object : json.at(key)) {
      const auto [place, added] = choices.of.insert(read(object));
      if (!added) throw_bad_input(place->first.text(), " appears twice");
    }
    return choices;
  } catch (const Json::exception& error) {
    throw_bad_input(source, ": ", json_reason(error));
  } catch (const Error& error) {
    throw_bad_input(source, ": ", error.what());
  }
}

}  // namespace shiftron
