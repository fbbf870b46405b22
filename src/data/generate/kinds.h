// The registry of kinds of generated data.
#pragma once

#include <string>
#include <vector>

#include "data/generate/generator.h"

namespace shiftron {

// All kinds, in the order of the help.
const std::vector<GeneratorKind>& generator_kinds();
// Throws Error(bad_input) with the nearest name if there is no such kind.
const GeneratorKind& generator_kind(const std::string& name);

}  // namespace shiftron
