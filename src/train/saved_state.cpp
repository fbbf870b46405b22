// The keys of the JSON object, and which of them may be missing: those that older versions had not.
#include "train/saved_state.h"

#include <nlohmann/json.hpp>

#include "core/check.h"

namespace shiftron {
namespace {

template <typename Read>
auto read(const std::string& text, const std::string& source, Read take) {
  try {
    return take(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error(source + ": the state of the run cannot be read: " + error.what(), ExitCode::no_checkpoint);
  }
}

}  // namespace

std::string to_json(const SavedState& state) {
  nlohmann::json json = {{"configuration", nlohmann::json::parse(to_json(state.configuration))},
                         {"trainer",
                          {{"applied_updates", state.trainer.applied_updates},
                           {"skipped_updates", state.trainer.skipped_updates},
                           {"skipped_in_row", state.trainer.skipped_in_row}}},
                         {"consumed_samples", state.consumed_samples},
                         {"validation_fingerprint", state.validation_fingerprint}};
  if (state.bfloat16_matmul) json["bfloat16_matmul"] = *state.bfloat16_matmul;
  if (state.bfloat16_tiles) json["bfloat16_tiles"] = *state.bfloat16_tiles;
  if (!state.library_choices.empty()) json["library_choices"] = state.library_choices;
  if (!state.imported_from.empty()) json["imported_from"] = state.imported_from;
  return json.dump();
}

RunConfig saved_config(const std::string& json, const std::string& source) {
  return read(json, source, [&](const nlohmann::json& state) {
    return config_from_json(state.at("configuration").dump(), source);
  });
}

SavedState saved_state(const std::string& text, const std::string& source) {
  return read(text, source, [&](const nlohmann::json& json) {
    SavedState state;
    state.configuration = config_from_json(json.at("configuration").dump(), source);
    const nlohmann::json& trainer = json.at("trainer");
    state.trainer = {.applied_updates = trainer.at("applied_updates").get<int64_t>(),
                     .skipped_updates = trainer.at("skipped_updates").get<int64_t>(),
                     .skipped_in_row = trainer.at("skipped_in_row").get<int64_t>()};
    state.consumed_samples = json.value("consumed_samples", int64_t{0});
    state.validation_fingerprint = json.value("validation_fingerprint", "");
    if (json.contains("bfloat16_matmul")) {
      state.bfloat16_matmul = json.at("bfloat16_matmul").get<bool>();
      state.bfloat16_tiles = json.value("bfloat16_tiles", false);
    }
    state.library_choices = json.value("library_choices", "");
    state.imported_from = json.value("imported_from", "");
    return state;
  });
}

}  // namespace shiftron
