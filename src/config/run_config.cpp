// What follows from the values of a configuration.
#include "config/run_config.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace shiftron {
std::string to_string(const Origin& origin) {
  return origin.line > 0 ? origin.file + ":" + std::to_string(origin.line) : origin.file;
}

std::string bracketed(const Origin& origin) {
  const std::string text = to_string(origin);
  return text.empty() ? "" : " (" + text + ")";
}

Schedule schedule_of(const RunConfig& config) {
  return {.kind = config.parallel.pipeline, .chunks = config.parallel.chunks};
}

ParallelLayout make_layout(const ParallelSection& parallel, int ranks) {
  const int smallest = minimum_ranks(parallel);
  CHECK(smallest > 0 && ranks % smallest == 0, "ranks ", ranks, ", tp cp pp ", smallest);
  return {
      .tp = parallel.tp, .cp = parallel.cp, .dp = ranks / smallest, .pp = parallel.pp, .order = parallel.rank_order};
}

int microbatches_of_step(const RunConfig& config, const ParallelLayout& layout) {
  return static_cast<int>(config.train.global_batch / (config.train.micro_batch * layout.dp));
}

int minimum_ranks(const ParallelSection& parallel) {
  const int64_t ranks = int64_t{parallel.tp} * parallel.cp * parallel.pp;  // each at most 65536
  return static_cast<int>(std::min<int64_t>(ranks, std::numeric_limits<int>::max()));
}

bool is_model_key(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("shift.");
}

}  // namespace shiftron
