// Rows, probes, packing and balance.
#include "evaluate/score_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/hash.h"

namespace shiftron {
namespace {

using Tokens = std::vector<int32_t>;

int64_t length_of(const Tokens& tokens) {
  return static_cast<int64_t>(tokens.size());
}

// For each input the one that answers for it: itself, or one that begins with it.
std::vector<size_t> merge_beginnings(const std::vector<Tokens>& inputs) {
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return inputs[a] < inputs[b]; });
  std::vector<size_t> merged(inputs.size());
  // In this order an input that begins any other begins the next one.
  for (size_t i = order.size(); i-- > 0;) {
    const Tokens& own = inputs[order[i]];
    const bool last = i + 1 == order.size();
    const bool begins = !last && own.size() < inputs[order[i + 1]].size() &&
                        std::equal(own.begin(), own.end(), inputs[order[i + 1]].begin());
    merged[order[i]] = begins ? merged[order[i + 1]] : order[i];
  }
  return merged;
}

// Samples of `length` tokens: numbers of rows in each.
std::vector<std::vector<int64_t>> pack(const std::vector<PlannedRow>& rows, int64_t length) {
  std::vector<int64_t> order(rows.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto length_at = [&](int64_t row) { return length_of(rows[static_cast<size_t>(row)].ids); };
  std::ranges::stable_sort(order, std::ranges::greater{}, length_at);
  std::vector<std::vector<int64_t>> samples;
  std::set<std::pair<int64_t, size_t>> room;  // tokens left, sample
  for (const int64_t row : order) {
    const int64_t needed = length_at(row);
    const auto found = room.lower_bound({needed, 0});
    if (found == room.end()) {
      samples.push_back({row});
      room.emplace(length - needed, samples.size() - 1);
      continue;
    }
    const auto [left, sample] = *found;
    room.erase(found);
    samples[sample].push_back(row);
    room.emplace(left - needed, sample);
  }
  return samples;
}

double cost_of(const std::vector<PlacedRow>& batch, const std::vector<PlannedRow>& rows, const PlanShape& shape) {
  double cost = shape.token_cost * static_cast<double>(shape.length * shape.samples);
  for (const PlacedRow& placed : batch) {
    const auto length = static_cast<double>(length_of(rows[static_cast<size_t>(placed.row)].ids));
    cost += shape.pair_cost * length * (length + 1) / 2;
  }
  return cost;
}

// Longest processing time first: each to the rank that has the least so far.
std::vector<std::vector<int64_t>> deal(const ScorePlan& plan, const PlanShape& shape) {
  std::vector<double> costs;
  for (const auto& batch : plan.batches) costs.push_back(cost_of(batch, plan.rows, shape));
  std::vector<int64_t> order(costs.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](int64_t batch) { return costs[static_cast<size_t>(batch)]; });
  std::vector<std::vector<int64_t>> of_rank(static_cast<size_t>(shape.ranks));
  std::vector<double> load(of_rank.size());
  for (const int64_t batch : order) {
    const auto rank = static_cast<size_t>(std::ranges::min_element(load) - load.begin());
    of_rank[rank].push_back(batch);
    load[rank] += costs[static_cast<size_t>(batch)];
  }
  return of_rank;
}

}  // namespace

size_t ScorePlanner::row_of(const Tokens& input) {
  const uint64_t hash = xxh3_64(input.data(), input.size() * sizeof(int32_t));
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    if (inputs_[known->second] == input) return known->second;
  }
  inputs_.push_back(input);
  by_hash_.emplace(hash, inputs_.size() - 1);
  return inputs_.size() - 1;
}

void ScorePlanner::add(const ScoreTokens& tokens) {
  CHECK(!tokens.targets.empty() && tokens.first >= 0 &&
            tokens.first + length_of(tokens.targets) <= length_of(tokens.input),
        tokens.targets.size(), " targets from row ", tokens.first, " on, of ", tokens.input.size());
  longest_ = std::max(longest_, length_of(tokens.input));
  passes_.push_back({row_of(tokens.input), tokens.first, tokens.targets});
}

int64_t ScorePlanner::tokens() const {
  return std::accumulate(inputs_.begin(), inputs_.end(), int64_t{0},
                         [](int64_t sum, const Tokens& input) { return sum + length_of(input); });
}

ScorePlan ScorePlanner::plan(const PlanShape& shape) const {
  CHECK(longest_ <= shape.length, "a row of ", longest_, " tokens in samples of ", shape.length);
  ScorePlan plan;
  const std::vector<size_t> merged = merge_beginnings(inputs_);
  std::vector<size_t> row_of_input(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (merged[i] != i) continue;
    row_of_input[i] = plan.rows.size();
    plan.rows.push_back({.ids = inputs_[i], .probes = {}});
  }
  const auto row_of_pass = [&](const Pass& pass) -> PlannedRow& { return plan.rows[row_of_input[merged[pass.row]]]; };
  const auto probe_of = [](const Pass& pass, size_t target) {
    return PlannedRow::Probe{pass.first + static_cast<int64_t>(target), pass.targets[target]};
  };
  for (const Pass& pass : passes_) {
    for (size_t j = 0; j < pass.targets.size(); ++j) row_of_pass(pass).probes.push_back(probe_of(pass, j));
  }
  for (PlannedRow& row : plan.rows) {
    std::ranges::sort(row.probes);
    const auto [behind, end] = std::ranges::unique(row.probes);
    row.probes.erase(behind, end);
    row.first_probe = std::exchange(plan.probes, plan.probes + static_cast<int64_t>(row.probes.size()));
  }
  for (const Pass& pass : passes_) {
    const PlannedRow& row = row_of_pass(pass);
    std::vector<int64_t>& numbers = plan.passes.emplace_back();
    for (size_t j = 0; j < pass.targets.size(); ++j) {
      numbers.push_back(row.first_probe +
                        (std::ranges::lower_bound(row.probes, probe_of(pass, j)) - row.probes.begin()));
    }
  }
  const std::vector<std::vector<int64_t>> samples = pack(plan.rows, shape.length);
  for (size_t sample = 0; sample < samples.size(); ++sample) {
    const auto place = static_cast<int64_t>(sample) % shape.samples;
    if (place == 0) plan.batches.emplace_back();
    int64_t begin = place * shape.length;
    for (const int64_t row : samples[sample]) {
      const int64_t length = length_of(plan.rows[static_cast<size_t>(row)].ids);
      plan.batches.back().push_back({row, std::exchange(begin, begin + length)});
    }
  }
  plan.of_rank = deal(plan, shape);
  return plan;
}

}  // namespace shiftron
