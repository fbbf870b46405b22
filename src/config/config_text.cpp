// Applies settings to a configuration, and writes it as text and JSON.
#include "config/config_text.h"

#include <map>
#include <nlohmann/json.hpp>

#include "config/familiar_names.h"
#include "config/options.h"
#include "core/check.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

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

}  // namespace

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

}  // namespace shiftron
