// What a checkpoint holds in addition to tensors.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/stored_tokenizer.h"

namespace shiftron {

struct CheckpointContent {
  int64_t step = 0;
  std::string configuration;  // resolved, as the text of a configuration file
  std::string state_json;     // JSON object of the trainer; `checkpoint diff` compares all but its "configuration"
  StoredTokenizer tokenizer;
  std::string data_fingerprint;
  std::string code_version;
};

}  // namespace shiftron
