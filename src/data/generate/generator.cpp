// The registry of kinds, and the check of their options.
#include "data/generate/generator.h"

#include <algorithm>

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/nearest_name.h"
#include "data/generate/hop.h"
#include "data/generate/induction.h"
#include "data/generate/math.h"
#include "data/generate/ngram.h"

namespace shiftron {
namespace {

std::string fault_of(const GeneratorOption& option, const std::string& value) {
  if (!option.choices.empty()) {
    if (std::ranges::find(option.choices, value) != option.choices.end()) return "";
    std::string names;
    for (const std::string& choice : option.choices) names += (names.empty() ? "" : ", ") + choice;
    return "is not one of " + names;
  }
  const int64_t number = std::stoll(value);
  if (number >= option.low && number <= option.high) return "";
  return "must be from " + std::to_string(option.low) + " to " + std::to_string(option.high);
}

}  // namespace

GeneratorSettings::GeneratorSettings(const GeneratorKind& kind, std::map<std::string, std::string> given)
    : values_(std::move(given)) {
  std::string faults;
  for (const auto& [name, value] : values_) {
    const auto option = std::ranges::find(kind.options, name, &GeneratorOption::name);
    const std::string fault = option == kind.options.end() ? "is not an option of this kind" : fault_of(*option, value);
    if (!fault.empty()) faults += "\n  --" + name + " " + value + " " + fault;
  }
  if (!faults.empty()) throw_bad_input("data generate ", kind.name, ":", faults);
  for (const GeneratorOption& option : kind.options) values_.try_emplace(option.name, option.otherwise);
}

int32_t GeneratorSettings::number(const std::string& name) const {
  return static_cast<int32_t>(std::stoll(values_.at(name)));
}

const std::vector<GeneratorKind>& generator_kinds() {
  static const std::vector<GeneratorKind> kinds = {induction_kind(), ngram_kind(), hop_kind(), math_kind()};
  return kinds;
}

const GeneratorKind& generator_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const GeneratorKind& kind : generator_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  std::string all;
  for (const std::string& one : names) all += (all.empty() ? "" : ", ") + one;
  throw_bad_input("no kind of generated data is named '", printable(name), "'", suggestion(name, names), " (there are ",
                  all, ")");
}

}  // namespace shiftron
