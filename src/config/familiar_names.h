// Names of keys and options in other trainers, and what they are called here.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

// A name of Megatron-LM, torchtitan, nanotron, Hugging Face, nanoGPT or lm-evaluation-harness.
struct FamiliarName {
  const char* name;        // lower case, words joined by '_'; with its section only where the last part says too little
  const char* target;      // a configuration key, or a command's option without dashes
  const char* value = "";  // that it stands for: train.precision bf16
};

// A name may have several rows; the first one whose target a command accepts counts.
const std::vector<FamiliarName>& familiar_names();

// The end of a message about the unknown key or option `name` (without dashes): "; did you mean train.steps?", or "" if
// nothing in `known` is meant by this name or is spelt like it. `dashes` goes before the name.
std::string suggested_key(const std::string& name, const std::vector<std::string>& known,
                          const std::string& dashes = "");

}  // namespace shiftron
