// Which rows a model reads to answer requests, and which rank reads them when. A function of requests and sizes alone:
// every rank makes the same plan.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "evaluate/score_tokens.h"

namespace shiftron {

// Tokens that a model reads once, and what is asked behind them.
struct PlannedRow {
  // The probability of `target` behind ids[position].
  struct Probe {
    int64_t position;
    int32_t target;
    auto operator<=>(const Probe&) const = default;
  };
  std::vector<int32_t> ids;
  std::vector<Probe> probes;  // ascending
  int64_t first_probe = 0;    // the number of the first one among those of all rows
};

// Where a row lies in a microbatch.
struct PlacedRow {
  int64_t row;    // of the plan
  int64_t begin;  // first token, counted over the microbatch
};

// Of a microbatch: `samples` of `length` tokens; of data-parallel ranks, and the operations of a token and of each pair
// of a token with one that it attends to, for the balance between them.
struct PlanShape {
  int64_t length = 0, samples = 1;
  int ranks = 1;
  double token_cost = 1, pair_cost = 0;
};

struct ScorePlan {
  std::vector<PlannedRow> rows;                 // none is the beginning of another
  std::vector<std::vector<int64_t>> passes;     // of each pass, in its order: numbers of probes
  std::vector<std::vector<PlacedRow>> batches;  // rows by their places
  std::vector<std::vector<int64_t>> of_rank;    // batches of each data-parallel rank, the dearest first
  int64_t probes = 0;                           // of all rows
};

// Collects passes; equal inputs, and those that another one begins with, become one row.
class ScorePlanner {
 public:
  void add(const ScoreTokens& tokens);
  int64_t longest() const { return longest_; }  // tokens
  int64_t tokens() const;                       // of all rows, before beginnings of others are left out
  int64_t passes() const { return static_cast<int64_t>(passes_.size()); }
  // Rows are laid where the least room is left for them, the longest first.
  ScorePlan plan(const PlanShape& shape) const;

 private:
  struct Pass {
    size_t row;
    int64_t first;
    std::vector<int32_t> targets;
  };
  size_t row_of(const std::vector<int32_t>& input);
  std::vector<std::vector<int32_t>> inputs_;
  std::unordered_multimap<uint64_t, size_t> by_hash_;
  std::vector<Pass> passes_;
  int64_t longest_ = 0;
};

}  // namespace shiftron
