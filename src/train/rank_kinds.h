// The plan of a whole layout: identical ranks are planned once.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "core/ledger.h"
#include "parallel/layout.h"

namespace shiftron {

// Ranks with the same memory and traffic, except that data-parallel ranks pass on different amounts after their sums,
// the first of them most.
struct RankKind {
  int rank = 0;       // the first of them
  int64_t ranks = 0;  // how many there are
  int work = 0;       // kinds with the same number differ only in their microbatches in flight
  Ledger planned;     // memory, kernels and traffic of one step of the first
};

// Every kind of a layout, by first rank. The time this takes depends on the kinds of stages, not on the number of
// ranks.
std::vector<RankKind> plan_kinds(const RunConfig& config, const ParallelLayout& layout, int threads);

}  // namespace shiftron
