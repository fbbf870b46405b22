// HellaSwag's cleaned texts, and the boxed answers in solutions of MATH.
#include "evaluate/tasks/preparation.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "evaluate/tasks/math_answers.h"
#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

void prepare_hellaswag(Record& record) {
  Json& item = record.value;
  const auto text = [&](const char* column) { return item.at(column).get<std::string>(); };
  const std::string label = text("label");
  int64_t gold = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), gold);
  if (error != std::errc() || end != label.data() + label.size()) {
    throw_bad_input(
        record.where, ": the label is \"", label,
        "\", not the number of an ending; items of HellaSwag's test file have no labels: use its validation file");
  }
  item["query"] =
      hellaswag_text(text("activity_label") + ": " + text("ctx_a") + " " + python::capitalize(text("ctx_b")));
  Json choices = Json::array();
  for (const Json& ending : item.at("endings")) choices.push_back(hellaswag_text(ending.get<std::string>()));
  item["choices"] = choices;
  item["gold"] = gold;
}

void prepare_answer(Record& record, bool minerva) {
  const auto answer = boxed_answer(record.value.at("solution").get<std::string>());
  if (!answer) {
    throw_bad_input(record.where, ": the solution has no boxed answer; it must contain \\boxed{…}");
  }
  record.value["answer"] = minerva ? normalized_minerva_answer(*answer) : *answer;
}

}  // namespace

std::string hellaswag_text(const std::string& text) {
  std::string result = python::replace(python::strip(text), " [title]", ". ");
  result = python::substitute("\\[.*?\\]", "", result);
  return python::replace(result, "  ", " ");
}

void prepare(Preparation preparation, Record& record) {
  switch (preparation) {
    case Preparation::none:
      return;
    case Preparation::hellaswag:
      return prepare_hellaswag(record);
    case Preparation::boxed_answer:
      return prepare_answer(record, false);
    case Preparation::minerva_answer:
      return prepare_answer(record, true);
  }
}

}  // namespace shiftron
