// Test helper: configurations from "key", "text" pairs over a small valid one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/config_text.h"
#include "config/run_config.h"

namespace shiftron {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Settings with origin a.conf, one line each from line 1.
inline std::vector<Setting> settings_of(const Pairs& pairs, const std::string& file = "a.conf") {
  std::vector<Setting> settings;
  int line = 0;
  for (const auto& [key, text] : pairs) settings.push_back({key, text, {.file = file, .line = ++line}});
  return settings;
}

// Every required key, without origins.
inline RunConfig small_config() {
  RunConfig config;
  config.model.layers = 4;
  config.model.hidden = 64;
  config.model.heads = 8;
  config.model.kv_heads = 4;
  config.model.ffn = 128;
  config.model.vocab = 256;
  config.train.steps = 100;
  config.train.global_batch = 16;
  config.train.sequence_length = 32;
  config.optimizer.learning_rate = 1e-3;
  config.data.train = {{.directory = "corpus"}};
  config.output.directory = "run";
  return config;
}

inline RunConfig small_config_with(const Pairs& pairs) {
  RunConfig config = small_config();
  apply_level(config, settings_of(pairs));
  resolve(config);
  return config;
}

}  // namespace shiftron
