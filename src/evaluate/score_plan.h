// Plans which rows a model reads to answer requests, and which rank reads them when. The plan depends only on requests
// and sizes, so every rank makes the same one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "evaluate/score_tokens.h"

namespace shiftron {

// Tokens that a model reads once, and the probes at their positions.
struct PlannedRow {
  // Asks for the probability of `target` after ids[position].
  struct Probe {
    int64_t position;
    int32_t target;
    auto operator<=>(const Probe&) const = default;
  };
  std::vector<int32_t> ids;
  std::vector<Probe> probes;  // ascending
  int64_t first_probe = 0;    // index of its first probe among the probes of all rows
};

// Where a row is placed in a microbatch. Its first `shared` tokens are those of an earlier row and are stored only
// there.
struct PlacedRow {
  int64_t row;    // of the plan
  int64_t begin;  // position of its first own token in the microbatch
  int64_t shared = 0;
  int64_t shared_begin = 0;  // position of the shared tokens
  int64_t place(int64_t token) const { return token < shared ? shared_begin + token : begin + token - shared; }
};

// Of a sample. If rows share tokens, attention works on copies of the whole rows, which are at most `attending` tokens.
struct SampleShape {
  int64_t length = 0;     // tokens to read
  int64_t attending = 0;  // at least `length`; 0: rows share no tokens
  bool operator==(const SampleShape&) const = default;
};

// Of a microbatch: `samples` samples of shape `sample` (one if rows share tokens). `ranks` counts data-parallel ranks;
// the costs, operations per token and per pair of a token and one that it attends to, balance the ranks.
struct PlanShape {
  SampleShape sample;
  int64_t samples = 1;
  int ranks = 1;
  double token_cost = 1, pair_cost = 0;
};

struct ScorePlan {
  std::vector<PlannedRow> rows;                 // no row is a prefix of another
  std::vector<std::vector<int64_t>> passes;     // for each pass: indices of its probes, in its order
  std::vector<std::vector<PlacedRow>> batches;  // rows of each, by position
  std::vector<std::vector<int64_t>> of_rank;    // batches of each data-parallel rank, the most expensive first
  int64_t probes = 0;                           // of all rows
};

// Collects passes. Equal inputs, and inputs that are a prefix of another one, become one row.
class ScorePlanner {
 public:
  void add(const ScoreTokens& tokens);
  int64_t longest() const { return longest_; }  // tokens
  int64_t tokens() const;                       // to read if one sample had room for all
  int64_t passes() const { return static_cast<int64_t>(passes_.size()); }
  // Chooses the sample length, a multiple of `unit`, with which the busiest of `ranks` reads the fewest tokens,
  // including unused ends of samples; the largest one if several are equal. If the longest row fits, it is at most
  // `most` and at least half of it. Rows share tokens if that saves more than their copies cost.
  SampleShape tightest_sample(int64_t most, int64_t unit, int ranks) const;
  // Rows that share tokens stay together. Best fit decreasing: the longest first, each into the sample with the least
  // room that is enough.
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
