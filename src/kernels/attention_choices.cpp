// Choices of attention as JSON: one object per problem, strides as [row, head], knobs as [number, value].
#include "kernels/attention_choices.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "kernels/choices_json.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, HeadStrides AttentionProblem::*> kStrides[] = {
    {"q", &AttentionProblem::q},     {"k", &AttentionProblem::k},         {"v", &AttentionProblem::v},
    {"out", &AttentionProblem::out}, {"d_out", &AttentionProblem::d_out}, {"d_q", &AttentionProblem::d_q},
    {"d_k", &AttentionProblem::d_k}, {"d_v", &AttentionProblem::d_v}};

const char* name_of(AttentionPass pass) {
  return pass == AttentionPass::forward ? "forward" : "backward";
}

// The strides that a pass has.
auto strides_of(AttentionPass pass) {
  return std::span(kStrides).first(pass == AttentionPass::forward ? 4 : std::size(kStrides));
}

AttentionPass pass_of(const std::string& name) {
  for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
    if (name == name_of(pass)) return pass;
  }
  throw_bad_input("unknown attention pass ", name);
}

Json json_of(const AttentionProblem& problem, const AttentionChoice& choice) {
  Json json = {{"pass", name_of(problem.pass)},  {"samples", problem.samples},
               {"length", problem.length},       {"heads", problem.heads},
               {"kv_heads", problem.kv_heads},   {"head_dim", problem.head_dim},
               {"documents", problem.documents}, {"deterministic", problem.deterministic}};
  for (const auto& [name, strides] : strides_of(problem.pass)) {
    json[name] = {(problem.*strides).row, (problem.*strides).head};
  }
  json["log_sum_exp"] = problem.statistics;
  json["engine"] = choice.engine;
  json["knobs"] = Json::array();
  for (const auto& [knob, value] : choice.knobs) json["knobs"].push_back({knob, value});
  json["workspace"] = choice.workspace;
  json["seconds"] = choice.seconds;
  return json;
}

std::pair<AttentionProblem, AttentionChoice> read_problem(const Json& json) {
  AttentionProblem problem{.pass = pass_of(json.at("pass")),
                           .samples = json.at("samples"),
                           .length = json.at("length"),
                           .heads = json.at("heads"),
                           .kv_heads = json.at("kv_heads"),
                           .head_dim = json.at("head_dim"),
                           .documents = json.at("documents"),
                           .deterministic = json.at("deterministic"),
                           .statistics = json.at("log_sum_exp")};
  for (const auto& [name, strides] : strides_of(problem.pass)) {
    problem.*strides = {.row = json.at(name).at(0), .head = json.at(name).at(1)};
  }
  AttentionChoice choice{
      .engine = json.at("engine"), .knobs = {}, .workspace = json.at("workspace"), .seconds = json.at("seconds")};
  for (const Json& knob : json.at("knobs")) {
    if (!choice.knobs.emplace(knob.at(0), knob.at(1)).second)
      throw_bad_input("knob ", knob.at(0).dump(), " appears twice");
  }
  return {problem, choice};
}

}  // namespace

std::string AttentionProblem::text() const {
  std::string text = detail::concatenate("attention ", name_of(pass), ": ", samples, " samples of ", length,
                                         " rows, heads ", heads, "/", kv_heads, " of ", head_dim);
  if (!documents) text += ", whole samples";
  if (deterministic) text += ", deterministic";
  for (const auto& [name, strides] : strides_of(pass)) {
    text += detail::concatenate(", ", name, " by ", (this->*strides).row, " and ", (this->*strides).head);
  }
  return text + detail::concatenate(", log_sum_exp by ", statistics);
}

std::string to_json(const AttentionChoices& choices) {
  return choices_to_json(choices, "attention", json_of);
}

AttentionChoices attention_choices_from(const std::string& json, const std::string& source) {
  return choices_from_json<AttentionProblem, AttentionChoice>(json, source, "attention", read_problem);
}

}  // namespace shiftron
