// A number that is not finite is null.
#include "cli/inspected_step.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "run/run_files.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

Json numbers_json(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(Json(json_number(value)));
  return list;
}

std::optional<std::string> quadrant_of(const KvPair& pair) {
  if (pair.key.taps.size() < 2 || pair.value.taps.size() < 2) return {};
  return fmt::format("key {}, value {}", pair.key.favours_current() ? "current" : "previous",
                     pair.value.favours_current() ? "current" : "previous");
}

Json quadrant_json(const KvPair& pair) {
  const auto quadrant = quadrant_of(pair);
  return quadrant ? Json(*quadrant) : Json();
}

Json counts_json(const std::optional<PairCounts>& counts) {
  if (!counts) return {};
  return {{"key_current_value_current", (*counts)[1][1]},
          {"key_previous_value_current", (*counts)[0][1]},
          {"key_current_value_previous", (*counts)[1][0]},
          {"key_previous_value_previous", (*counts)[0][0]}};
}

Json taps_json(const TapReport& report) {
  if (report.pairs.empty() && report.queries.empty()) return {};
  Json json = {{"pairs", Json::array()}, {"queries", Json::array()}};
  for (size_t i = 0; i < report.pairs.size(); ++i) {
    const KvPair& pair = report.pairs[i];
    Json entry = {{"layer", pair.layer},
                  {"kv_head", pair.kv_head},
                  {"key", numbers_json(pair.key.taps)},
                  {"key_sum", json_number(pair.key.sum())},
                  {"value", numbers_json(pair.value.taps)},
                  {"value_sum", json_number(pair.value.sum())},
                  {"quadrant", quadrant_json(pair)},
                  {"initial", nullptr}};
    if (!report.initial.empty()) {
      const KvPair& initial = report.initial[i];
      entry["initial"] = {{"key", numbers_json(initial.key.taps)},
                          {"value", numbers_json(initial.value.taps)},
                          {"quadrant", quadrant_json(initial)}};
    }
    json["pairs"].push_back(std::move(entry));
  }
  for (size_t layer = 0; layer < report.queries.size(); ++layer) {
    for (size_t head = 0; head < report.queries[layer].size(); ++head) {
      const HeadTaps& query = report.queries[layer][head];
      json["queries"].push_back({{"layer", layer},
                                 {"head", head},
                                 {"query", numbers_json(query.taps)},
                                 {"query_sum", json_number(query.sum())}});
    }
  }
  json["initial_from"] = report.initial_from.empty() ? Json() : Json(report.initial_from);
  json["table4"] = counts_json(report.counts);
  json["initial_table4"] = counts_json(report.initial_counts);
  json["changed_quadrant"] = report.changed_quadrant ? Json(*report.changed_quadrant) : Json();
  return json;
}

Json scores_json(const HeadReport& report, const RepeatOptions& options) {
  Json json = {{"seed", options.seed},
               {"sequences", options.sequences},
               {"periods", report.tokens.periods},
               {"candidates", report.tokens.candidates},
               {"first_copy_loss", json_number(report.first_copy_loss)},
               {"second_copy_loss", json_number(report.second_copy_loss)},
               {"heads", Json::array()}};
  for (const HeadScore& head : report.heads) {
    json["heads"].push_back({{"layer", head.layer},
                             {"head", head.head},
                             {"kv_head", head.kv_head},
                             {"induction", json_number(head.induction)},
                             {"previous", json_number(head.previous)},
                             {"current", json_number(head.current)},
                             {"induction_of_periods", numbers_json(head.induction_of_periods)}});
  }
  return json;
}

}  // namespace

nlohmann::ordered_json step_json(const InspectedStep& of, const RepeatOptions& options) {
  return {{"step", of.step},
          {"directory", of.directory},
          {"layers", of.model.layers},
          {"heads", of.model.heads},
          {"kv_heads", of.model.kv_heads},
          {"taps", taps_json(of.taps)},
          {"scores", scores_json(of.scores, options)}};
}

}  // namespace shiftron::cli
