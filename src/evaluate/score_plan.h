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

// Where a row lies in a microbatch. Its first `shared` tokens are those of a row before it, and lie there alone.
struct PlacedRow {
  int64_t row;    // of the plan
  int64_t begin;  // first token of its own, counted over the microbatch
  int64_t shared = 0;
  int64_t shared_begin = 0;  // where these lie
  int64_t place(int64_t token) const { return token < shared ? shared_begin + token : begin + token - shared; }
};

// Of a sample. Where rows share tokens, each is whole when it attends: these copies are `attending` tokens at most.
struct SampleShape {
  int64_t length = 0;     // tokens that are read
  int64_t attending = 0;  // `length` at least; 0: no row shares tokens
  bool operator==(const SampleShape&) const = default;
};

// Of a microbatch: `samples` of `sample`, one where rows share tokens; of data-parallel ranks, and the operations of a
// token and of each pair of a token with one that it attends to, for the balance between them.
struct PlanShape {
  SampleShape sample;
  int64_t samples = 1;
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
  int64_t tokens() const;                       // that are read where a sample has room for all
  int64_t passes() const { return static_cast<int64_t>(passes_.size()); }
  // The sample whose length, in whole `unit`s, is that with which the busiest of `ranks` reads the fewest tokens, the
  // unused ends of samples among them: at most `most` and at least half of it where the longest row fits; the largest
  // of equals. Rows share tokens where that saves more than their copies cost.
  SampleShape tightest_sample(int64_t most, int64_t unit, int ranks) const;
  // Rows that share tokens are laid together, where the least room is left for them, the longest first.
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
