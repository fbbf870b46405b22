// The taps of a step's KV pairs next to their initial values, and the counts of Table 4 of the paper.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/checkpoint_model.h"

namespace shiftron {

// Effective taps of one head, the current token first: taps[i] multiplies the token i positions before it. The paper's
// α1, α2 (key) and β1, β2 (value). Without shift: 1.
struct HeadTaps {
  std::vector<double> taps;
  double sum() const;
  // Whether taps[0] > taps[1], as in Table 4 of the paper. Needs two taps or more.
  bool favours_current() const { return taps[0] > taps[1]; }
};

// Key and value of one KV head.
struct KvPair {
  int64_t layer = 0, kv_head = 0;
  HeadTaps key, value;
};

// Table 4: pairs by whether key and value favour the current token: counts[key][value], 1 = they do.
using PairCounts = std::array<std::array<int64_t, 2>, 2>;
PairCounts count_pairs(const std::vector<KvPair>& pairs);

struct TapReport {
  std::vector<KvPair> pairs;                   // by layer, then by KV head; empty: neither keys nor values are shifted
  std::vector<std::vector<HeadTaps>> queries;  // [layer][head]; empty: queries are not shifted
  std::vector<KvPair> initial;                 // of the same pairs; empty if unknown
  std::string initial_from;  // the step that they were read from, or "seed N" if they were drawn again
  // Both set only if keys and values are shifted.
  std::optional<PairCounts> counts, initial_counts;
  std::optional<int64_t> changed_quadrant;  // pairs whose key or value favours another token than initially
};

// Reads `model`'s step. Initial values come from step 0 of the same run. If that is gone and the weights were
// initialized here (not imported), they are drawn again from train.seed. Throws Error(no_checkpoint) if the step is
// damaged.
TapReport report_taps(const CheckpointModel& model);

}  // namespace shiftron
