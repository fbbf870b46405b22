// Applies settings to a configuration, writes it as text and JSON, compares two of them.
#include "train/run_config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/shell_word.h"
#include "data/utf8.h"
#include "train/familiar_names.h"
#include "train/options.h"

namespace shiftron {
namespace {

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
  return all;
}

std::map<std::string, Option> options_by_key() {
  std::map<std::string, Option> by_key;
  for (Option& option : option_table()) by_key.emplace(option.key, option);
  return by_key;
}

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (const Option& option : option_table()) keys.push_back(option.key);
  return keys;
}

std::string bracketed(const Origin& origin) {
  const std::string text = to_string(origin);
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

std::string to_string(const Origin& origin) {
  return origin.line > 0 ? origin.file + ":" + std::to_string(origin.line) : origin.file;
}

void apply_level(RunConfig& config, const std::vector<Setting>& settings, bool repeats_win) {
  const std::map<std::string, Option> options = options_by_key();
  std::map<std::string, Origin> seen;  // keys that this level has given
  for (const Setting& setting : settings) {
    const auto fault = [&](const std::string& text) {
      config.reading_faults.push_back(text + bracketed(setting.origin));
    };
    const auto found = options.find(setting.key);
    if (found == options.end()) {
      fault("unknown key " + printable(setting.key) + suggested_key(setting.key, all_keys()));
      continue;
    }
    const Option& option = found->second;
    const auto [earlier, is_first] = seen.emplace(setting.key, setting.origin);
    if (option.is_list) {
      if (is_first) option.reset(config);
      if (setting.text.empty()) continue;
    } else if (!is_first && !repeats_win) {
      fault(setting.key + " is given twice, first at " + to_string(earlier->second));
      continue;
    }
    Origin& origin = config.origins[setting.key];
    const bool stays_unreadable = option.is_list && !is_first && origin.unreadable;
    origin = setting.origin;
    const std::string wrong = option.read(config, setting.text);
    origin.unreadable = stays_unreadable || !wrong.empty();
    if (!wrong.empty()) {
      option.reset(config);
      fault(setting.key + " '" + printable(setting.text) + "' " + wrong);
    }
  }
}

void resolve(RunConfig& config) {
  const ModelConfig full = with_defaults(config.model);
  if (!config.origins.count("model.kv_heads")) config.model.kv_heads = full.kv_heads;
  if (!config.origins.count("model.head_dim")) config.model.head_dim = full.head_dim;
}

Schedule schedule_of(const RunConfig& config) {
  return {.kind = config.parallel.pipeline, .chunks = config.parallel.chunks};
}

ParallelLayout make_layout(const ParallelSection& parallel, int ranks) {
  const int smallest = minimum_ranks(parallel);
  CHECK(smallest > 0 && ranks % smallest == 0, "ranks ", ranks, ", tp cp pp ", smallest);
  return {
      .tp = parallel.tp, .cp = parallel.cp, .dp = ranks / smallest, .pp = parallel.pp, .order = parallel.rank_order};
}

int minimum_ranks(const ParallelSection& parallel) {
  const int64_t ranks = int64_t{parallel.tp} * parallel.cp * parallel.pp;  // each at most 65536
  return static_cast<int>(std::min<int64_t>(ranks, std::numeric_limits<int>::max()));
}

std::string to_config_text(const RunConfig& config) {
  std::string text, section;
  for (const Option& option : option_table()) {
    if (option.section() != section) {
      text += (section.empty() ? "[" : "\n[") + option.section() + "]\n";
      section = option.section();
    }
    const std::vector<std::string> values = option.write(config);
    if (values.empty()) text += "# " + option.name() + " =\n";
    for (const std::string& value : values) text += option.name() + " = " + value + "\n";
  }
  return text;
}

std::string to_json(const RunConfig& config) {
  nlohmann::ordered_json json;
  for (const Option& option : option_table()) {
    const std::vector<std::string> values = option.write(config);
    nlohmann::ordered_json& place = json[option.section()];
    if (option.is_list) {
      place[option.name()] = values;
    } else if (!values.empty()) {
      const bool is_plain = !option.is_text && nlohmann::ordered_json::accept(values.front());
      place[option.name()] =
          is_plain ? nlohmann::ordered_json::parse(values.front()) : nlohmann::ordered_json(values.front());
    }
  }
  return json.dump(2);
}

RunConfig config_from_json(const std::string& json, const std::string& source) {
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, false);
  if (!root.is_object()) throw_bad_input(source, ": the configuration is not a JSON object");
  std::vector<Setting> settings;
  for (const auto& [section, keys] : root.items()) {
    if (!keys.is_object()) throw_bad_input(source, ": section ", section, " is not a JSON object");
    for (const auto& [name, value] : keys.items()) {
      const nlohmann::json values = value.is_array() ? value : nlohmann::json::array({value});
      for (const nlohmann::json& one : values) {
        const std::string text = one.is_string() ? one.get<std::string>() : one.dump();
        settings.push_back({.key = section + "." + name, .text = text, .origin = {.file = source}});
      }
    }
  }
  RunConfig config;
  apply_level(config, settings);
  resolve(config);
  return config;
}

std::string hash_input(const RunConfig& config) {
  std::string text;
  for (const Option& option : option_table()) {
    if (!option.may_differ) text += option.key + "=" + joined(option.write(config)) + "\n";
  }
  return text;
}

bool is_model_key(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("shift.");
}

std::vector<ChangedKey> changed_keys(const RunConfig& before, const RunConfig& after) {
  std::vector<ChangedKey> changed;
  for (const Option& option : option_table()) {
    const std::vector<std::string> old_texts = option.write(before), new_texts = option.write(after);
    if (old_texts != new_texts) {
      changed.push_back({option.key, joined(old_texts), joined(new_texts), option.may_differ});
    }
  }
  return changed;
}

std::string new_run_from(const std::string& step_directory, const std::string& options) {
  return "shiftron checkpoint import " + shell_word(step_directory) +
         " --format shiftron --output NEW, then shiftron train --config NEW/config.conf " + options +
         " --output.directory NEW";
}

void require_resumable(const RunConfig& saved, const RunConfig& now, bool model_only,
                       const std::string& step_directory) {
  std::string faults;
  for (const std::string& fault : saved.reading_faults) faults += "\n  " + fault;
  if (!faults.empty()) {
    throw_bad_input(
        "the run's configuration contains values that this version of the program does not know; resume with the "
        "version that saved it:",
        faults);
  }
  bool of_model = false;
  for (const ChangedKey& changed : changed_keys(saved, now)) {
    if (changed.may_differ) continue;
    if (model_only && !is_model_key(changed.key)) continue;
    faults += "\n  " + changed.key + " was '" + changed.before + "', is now '" + changed.after + "'";
    if (const auto origin = now.origins.find(changed.key); origin != now.origins.end())
      faults += bracketed(origin->second);
    of_model = of_model || is_model_key(changed.key);
  }
  if (faults.empty()) return;
  if (!step_directory.empty() && !of_model) {
    faults += "\nthey may differ in a new run that starts from this step's parameters: " +
              new_run_from(step_directory, "--config YOURS.conf");
  }
  throw_bad_input("these keys may not differ when a run resumes:", faults);
}

}  // namespace shiftron
