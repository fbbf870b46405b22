// The plan of a whole layout: ranks that are alike are planned once.
#pragma once

#include <vector>

#include "core/ledger.h"
#include "parallel/layout.h"
#include "train/run_config.h"

namespace shiftron {

// Ranks that need the same memory and exchange the same, but for what data-parallel ranks hand over behind their sums,
// the first of them most.
struct RankKind {
  int rank = 0;       // the first of them
  int64_t ranks = 0;  // how many there are
  int work = 0;       // kinds of one number differ by their microbatches in flight alone
  Ledger planned;     // memory, kernels and traffic of one step of the first
};

// Every kind of a layout, by first rank. Its time follows from the kinds of stages, not from the number of ranks.
std::vector<RankKind> plan_kinds(const RunConfig& config, const ParallelLayout& layout, int threads);

}  // namespace shiftron
