// The taps of a step's KV pairs next to their initial values, and the counts of the paper's Table 4.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/checkpoint_model.h"

namespace shiftron {

// Taps of one head as they mix, the current token first: taps[i] multiplies the token i before it. The paper's α1, α2
// (key) and β1, β2 (value). Without shift: 1.
struct HeadTaps {
  std::vector<double> taps;
  double sum() const;
  // Whether taps[0] > taps[1], as the paper's Table 4 asks. Only of two taps or more.
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
  std::vector<KvPair> initial;                 // of the same pairs; empty where they are not known
  std::string initial_from;  // the step that they were read from, or "seed N", of which they are a function
  // Both only where keys and values are shifted.
  std::optional<PairCounts> counts, initial_counts;
  std::optional<int64_t> changed_quadrant;  // pairs that favour another token than initially, in key or value
};

// Reads `model`'s step. Initial values are those of step 0 next to it; where that is gone, of a model whose weights
// began here, they are drawn again from train.seed. Throws Error(no_checkpoint) where the step is damaged.
TapReport report_taps(const CheckpointModel& model);

}  // namespace shiftron
