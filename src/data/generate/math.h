// A miniature of grade-school math problems: statements, a question, the solution step by step.
#pragma once

#include "data/generate/generator.h"

namespace shiftron {

GeneratorKind math_kind();

}  // namespace shiftron
