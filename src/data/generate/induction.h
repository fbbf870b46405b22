// Induction data: distinct symbols up to the first repeat, then the symbol that came after the first occurrence.
#pragma once

#include "data/generate/generator.h"

namespace shiftron {

GeneratorKind induction_kind();

}  // namespace shiftron
