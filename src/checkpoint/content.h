// What a checkpoint holds beside tensors.
#pragma once

#include <cstdint>
#include <string>

namespace shiftron {

struct CheckpointContent {
  int64_t step = 0;
  std::string configuration;  // resolved, as text of a configuration file
  std::string
      state_json;  // a JSON object of the trainer; `checkpoint diff` compares all of it but its "configuration"
  std::string tokenizer_model;  // bytes of the file; empty = none
  std::string data_fingerprint;
  std::string code_version;
};

}  // namespace shiftron
