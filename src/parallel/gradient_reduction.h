// Sums gradients over every rank that holds a copy of a parameter or a part of its gradient.
#pragma once

#include "parallel/parameter.h"
#include "parallel/run.h"

namespace shiftron {

// In this order: parameters whole on every tp rank (their rows were split) over tp; key, value and shift gradients over
// the ranks that share a KV head; the tied table over first and last stage; everything over dp.
void reduce_gradients(Stream& stream, const Groups& groups, const ParameterSet& set);

}  // namespace shiftron
