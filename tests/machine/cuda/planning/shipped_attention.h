// Attention of the configurations in configs/.
#pragma once

#include <map>
#include <string>

#include "kernels/attention_choices.h"

namespace shiftron {

// What the files of a directory, and of its layouts/, ask for on 1, 2, 4 and 8 tensor-parallel ranks: forward problems,
// each once, with the names of who asks ("1.5b tp 2, …").
std::map<AttentionProblem, std::string> shipped_attention(const std::string& directory);

}  // namespace shiftron
