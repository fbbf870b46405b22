// A SavedWriter as JSON.
#include "data/saved_writer.h"

#include <nlohmann/json.hpp>

#include "core/check.h"

namespace shiftron {

void throw_damaged_save(const std::string& output) {
  throw_bad_input("what an interrupted build saved in ", output, " is damaged; give the command again to start over");
}

std::string saved_text(const SavedWriter& saved) {
  nlohmann::ordered_json json = {{"number", saved.number}, {"first", saved.first}, {"has_targets", saved.has_targets}};
  for (const DocumentBuckets::Saved& part : saved.parts) {
    json["parts"].push_back({{"documents", part.documents},
                             {"tokens", part.tokens},
                             {"text_bytes", part.text_bytes},
                             {"has_targets", part.has_targets},
                             {"index_bytes", part.index_bytes},
                             {"token_bytes", part.token_bytes}});
  }
  json["hashes"] = saved.hashes;
  json["note"] = saved.note;
  return json.dump(0, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

SavedWriter parse_saved(const std::string& text, const std::string& output) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    SavedWriter saved{json.at("note"),  json.at("number"), json.at("first"), json.at("has_targets"), {},
                      json.at("hashes")};
    for (const nlohmann::json& part : json.at("parts")) {
      saved.parts.push_back({part.at("documents"), part.at("tokens"), part.at("text_bytes"), part.at("has_targets"),
                             part.at("index_bytes"), part.at("token_bytes")});
    }
    return saved;
  } catch (const nlohmann::json::exception&) {
    throw_damaged_save(output);
  }
}

}  // namespace shiftron
