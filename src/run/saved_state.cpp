// The keys of the JSON object; those that older versions did not have may be missing.
#include "run/saved_state.h"

#include <nlohmann/json.hpp>

#include "config/config_text.h"
#include "core/check.h"
#include "kernels/choose_products.h"

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

nlohmann::json products_json(const Bfloat16Products& products) {
  nlohmann::json kept;
  for (const ProductClass& of : kProductClasses) kept[of.key] = name_of(products.*of.by);
  return kept;
}

Bfloat16Products products_of(const nlohmann::json& kept, const std::string& source) {
  Bfloat16Products products;
  for (const ProductClass& of : kProductClasses) {
    const auto name = kept.at(of.key).get<std::string>();
    const std::optional<ProductsBy> found = products_by(name);
    if (!found) throw Error(source + ": this version has no matrix products by " + name, ExitCode::no_checkpoint);
    products.*of.by = *found;
  }
  return products;
}

// Older versions made two choices: for large products and for their own tiles.
Bfloat16Products older_products(bool matmul, bool tiles) {
  const ProductsBy large = matmul ? ProductsBy::library : ProductsBy::float32;
  return {.forward = large,
          .to_input = large,
          .to_weight = tiles ? ProductsBy::vectors : large,
          .attention = tiles ? ProductsBy::vectors : ProductsBy::float32};
}

nlohmann::json origin_json(const ModelOrigin& origin) {
  nlohmann::json kept = {{"from", origin.from}, {"positions", origin.positions}, {"end_tokens", origin.end_tokens}};
  if (origin.begin_token) kept["begin_token"] = *origin.begin_token;
  return kept;
}

ModelOrigin origin_of(const nlohmann::json& kept) {
  ModelOrigin origin{.from = kept.at("from").get<std::string>(),
                     .positions = kept.at("positions").get<int64_t>(),
                     .end_tokens = kept.at("end_tokens").get<std::vector<int64_t>>(),
                     .begin_token = {}};
  if (kept.contains("begin_token")) origin.begin_token = kept.at("begin_token").get<int64_t>();
  return origin;
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
  if (state.bfloat16) json["bfloat16_products"] = products_json(*state.bfloat16);
  if (!state.library_choices.empty()) json["library_choices"] = state.library_choices;
  if (!state.imported_from.empty()) json["imported_from"] = state.imported_from;
  if (!state.without_tokenizer.empty()) json["without_tokenizer"] = state.without_tokenizer;
  if (state.end_of_document) json["end_of_document"] = *state.end_of_document;
  if (!state.origin.from.empty()) json["origin"] = origin_json(state.origin);
  return json.dump();
}

RunConfig saved_config(const std::string& json, const std::string& source) {
  return read(json, source,
              [&](const nlohmann::json& state) { return config_from_json(state.at("configuration").dump(), source); });
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
    if (json.contains("bfloat16_products")) state.bfloat16 = products_of(json.at("bfloat16_products"), source);
    if (json.contains("bfloat16_matmul")) {
      state.bfloat16 = older_products(json.at("bfloat16_matmul").get<bool>(), json.value("bfloat16_tiles", false));
    }
    state.library_choices = json.value("library_choices", "");
    state.imported_from = json.value("imported_from", "");
    state.without_tokenizer = json.value("without_tokenizer", "");
    if (json.contains("end_of_document")) state.end_of_document = json.at("end_of_document").get<int32_t>();
    state.origin.from = state.imported_from;  // older versions saved only this
    if (json.contains("origin")) state.origin = origin_of(json.at("origin"));
    return state;
  });
}

}  // namespace shiftron
