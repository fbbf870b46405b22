// Sentences of two symbols and the third that a fixed table gives for them.
#pragma once

#include "data/generate/generator.h"

namespace shiftron {

GeneratorKind ngram_kind();

}  // namespace shiftron
