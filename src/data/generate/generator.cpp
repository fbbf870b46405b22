// Checks the options of a kind.
#include "data/generate/generator.h"

#include <algorithm>

#include "core/check.h"

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

}  // namespace shiftron
