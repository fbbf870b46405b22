// Multi-hop induction: every position is labelled with the symbol k hops back.
#pragma once

#include "data/generate/generator.h"

namespace shiftron {

GeneratorKind hop_kind();

}  // namespace shiftron
