// Builds rows and probes, shares common prefixes, packs samples and balances ranks.
#include "evaluate/score_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/hash.h"

namespace shiftron {
namespace {

using Tokens = std::vector<int32_t>;

// Rows share tokens if that reduces the tokens to read by this factor, since copies of queries, keys and values have a
// cost.
constexpr double kWorthSharing = 1.1;
// At most so many tokens of copies per token read, which bounds their memory.
constexpr int64_t kMostCopies = 4;

int64_t length_of(const Tokens& tokens) {
  return static_cast<int64_t>(tokens.size());
}

int64_t common_prefix_length(const Tokens& a, const Tokens& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

// Inputs in lexicographic order: inputs with a common prefix are neighbours.
struct SortedInputs {
  std::vector<size_t> order;           // inputs that are no prefix of another one
  std::vector<int64_t> common_prefix;  // length of the common prefix of each of these and the next one
  std::vector<size_t> merged;          // for each input: itself, or the input of which it is a prefix
};

SortedInputs sort_inputs(const std::vector<Tokens>& inputs) {
  std::vector<size_t> all(inputs.size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::ranges::sort(all, [&](size_t a, size_t b) { return inputs[a] < inputs[b]; });
  SortedInputs sorted{.order = {}, .common_prefix = {}, .merged = std::vector<size_t>(inputs.size())};
  // In this order, an input that is a prefix of any other is a prefix of the next one.
  for (size_t i = all.size(); i-- > 0;) {
    const size_t own = all[i];
    const int64_t common_prefix = i + 1 == all.size() ? 0 : common_prefix_length(inputs[own], inputs[all[i + 1]]);
    const bool begins = i + 1 < all.size() && common_prefix == length_of(inputs[own]);
    sorted.merged[own] = begins ? sorted.merged[all[i + 1]] : own;
    if (begins) continue;
    sorted.order.push_back(own);
    sorted.common_prefix.push_back(common_prefix);
  }
  std::ranges::reverse(sorted.order);
  std::ranges::reverse(sorted.common_prefix);
  return sorted;
}

// Consecutive rows of SortedInputs that all begin with the same `shared` tokens, which are read once.
struct Tree {
  size_t first;
  int64_t rows, shared;
  int64_t copies;  // tokens of all rows
  int64_t saved() const { return (rows - 1) * shared; }
  int64_t tokens() const { return copies - saved(); }
};

std::vector<Tree> single_rows(const std::vector<Tokens>& inputs, const SortedInputs& sorted) {
  std::vector<Tree> trees;
  for (size_t i = 0; i < sorted.order.size(); ++i) trees.push_back({i, 1, 0, length_of(inputs[sorted.order[i]])});
  return trees;
}

// Joins neighbours with the longest common prefix first, if that saves tokens and a sample has room.
std::vector<Tree> join_rows(const std::vector<Tokens>& inputs, const SortedInputs& sorted, const SampleShape& sample) {
  std::vector<Tree> trees = single_rows(inputs, sorted);
  if (trees.empty()) return {};
  std::vector<size_t> first(trees.size()), borders(trees.size() - 1);  // first[last row of a tree] is its first row
  std::iota(first.begin(), first.end(), size_t{0});
  std::iota(borders.begin(), borders.end(), size_t{0});
  std::ranges::stable_sort(borders, std::ranges::greater{},
                           [&](size_t border) { return sorted.common_prefix[border]; });
  for (const size_t border : borders) {
    Tree &left = trees[first[border]], &right = trees[border + 1];
    const Tree both{left.first, left.rows + right.rows, sorted.common_prefix[border], left.copies + right.copies};
    if (both.saved() <= left.saved() + right.saved() || both.tokens() > sample.length || both.copies > sample.attending)
      continue;
    first[border + static_cast<size_t>(right.rows)] = left.first;
    left = both;
    right.rows = 0;
  }
  std::erase_if(trees, [](const Tree& tree) { return tree.rows == 0; });
  return trees;
}

std::vector<Tree> make_trees(const std::vector<Tokens>& inputs, const SortedInputs& sorted, const SampleShape& sample) {
  if (sample.attending > 0) return join_rows(inputs, sorted, sample);
  std::vector<Tree> trees = single_rows(inputs, sorted);
  std::ranges::sort(trees, {}, [&](const Tree& tree) { return sorted.order[tree.first]; });
  return trees;
}

// Returns the samples, each a list of indices of trees.
std::vector<std::vector<size_t>> pack(const std::vector<Tree>& trees, const SampleShape& sample) {
  std::vector<size_t> order(trees.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t tree) { return trees[tree].tokens(); });
  const int64_t attending = sample.attending > 0 ? sample.attending : sample.length;
  int64_t fewest = attending;
  for (const Tree& tree : trees) fewest = std::min(fewest, tree.copies);
  std::vector<std::vector<size_t>> samples;
  std::vector<int64_t> copies;                // of each sample
  std::set<std::pair<int64_t, size_t>> room;  // (tokens left, sample)
  for (const size_t number : order) {
    const Tree& tree = trees[number];
    auto found = room.lower_bound({tree.tokens(), 0});
    while (found != room.end() && copies[found->second] + tree.copies > attending) ++found;
    const bool fits = found != room.end();
    const auto [left, place] = fits ? *found : std::pair(sample.length, samples.size());
    if (fits) {
      room.erase(found);
    } else {
      samples.emplace_back();
      copies.push_back(0);
    }
    samples[place].push_back(number);
    copies[place] += tree.copies;
    if (copies[place] + fewest <= attending) room.emplace(left - tree.tokens(), place);
  }
  return samples;
}

int64_t tokens_of(const std::vector<Tree>& trees) {
  return std::accumulate(trees.begin(), trees.end(), int64_t{0},
                         [](int64_t sum, const Tree& tree) { return sum + tree.tokens(); });
}

struct TokensToRead {
  int64_t tokens;
  bool shares;
};

TokensToRead tokens_to_read(const std::vector<Tokens>& inputs, const SortedInputs& sorted) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  const int64_t joined = tokens_of(join_rows(inputs, sorted, {kAll, kAll}));
  const int64_t single = tokens_of(single_rows(inputs, sorted));
  const bool shares = kWorthSharing * static_cast<double>(joined) < static_cast<double>(single);
  return {shares ? joined : single, shares};
}

// The most copies in any sample.
int64_t most_copies(const std::vector<std::vector<size_t>>& samples, const std::vector<Tree>& trees) {
  int64_t most = 0;
  for (const std::vector<size_t>& sample : samples) {
    int64_t copies = 0;
    for (const size_t tree : sample) copies += trees[tree].copies;
    most = std::max(most, copies);
  }
  return most;
}

double cost_of(const std::vector<PlacedRow>& batch, const std::vector<PlannedRow>& rows, const PlanShape& shape) {
  double cost = shape.token_cost * static_cast<double>(shape.sample.length * shape.samples);
  for (const PlacedRow& placed : batch) {
    const auto length = static_cast<double>(length_of(rows[static_cast<size_t>(placed.row)].ids));
    cost += shape.pair_cost * length * (length + 1) / 2;
  }
  return cost;
}

// Longest processing time first: each batch goes to the rank with the least load so far.
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
  return tokens_to_read(inputs_, sort_inputs(inputs_)).tokens;
}

SampleShape ScorePlanner::tightest_sample(int64_t most, int64_t unit, int ranks) const {
  constexpr int64_t kLengths = 32;  // most lengths to try: packing takes as long as reading a few rows
  const SortedInputs sorted = sort_inputs(inputs_);
  const bool shares = tokens_to_read(inputs_, sorted).shares;
  const auto units = [unit](int64_t tokens) { return (tokens + unit - 1) / unit; };
  const int64_t last = units(std::max(most, longest_)), first = std::max(units(longest_), units(most / 2));
  const int64_t stride = (last - first) / kLengths + 1;
  SampleShape best{.length = last * unit};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t length = last; length >= first; length -= stride) {
    const SampleShape sample{.length = length * unit, .attending = shares ? kMostCopies * length * unit : 0};
    const std::vector<Tree> trees = make_trees(inputs_, sorted, sample);
    const std::vector<std::vector<size_t>> samples = pack(trees, sample);
    const int64_t read = (static_cast<int64_t>(samples.size()) + ranks - 1) / ranks * length;
    if (read >= least) continue;
    least = read;
    // At least sample.length, so that later rows as long as a sample fit.
    best = {.length = sample.length, .attending = shares ? std::max(sample.length, most_copies(samples, trees)) : 0};
  }
  return best;
}

ScorePlan ScorePlanner::plan(const PlanShape& shape) const {
  const SampleShape& sample = shape.sample;
  CHECK(longest_ <= sample.length, "a row of ", longest_, " tokens in samples of ", sample.length);
  CHECK(sample.attending == 0 || (shape.samples == 1 && sample.length <= sample.attending), "rows share tokens of ",
        shape.samples, " samples of ", sample.length, ", whose copies are ", sample.attending);
  ScorePlan plan;
  const SortedInputs sorted = sort_inputs(inputs_);
  const std::vector<size_t>& merged = sorted.merged;
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
    const auto [duplicates, end] = std::ranges::unique(row.probes);
    row.probes.erase(duplicates, end);
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
  const std::vector<Tree> trees = make_trees(inputs_, sorted, sample);
  const std::vector<std::vector<size_t>> samples = pack(trees, sample);
  for (size_t number = 0; number < samples.size(); ++number) {
    const auto place = static_cast<int64_t>(number) % shape.samples;
    if (place == 0) plan.batches.emplace_back();
    int64_t begin = place * sample.length;
    for (const size_t tree : samples[number]) {
      const int64_t shared_begin = begin;
      for (int64_t i = 0; i < trees[tree].rows; ++i) {
        const size_t input = sorted.order[trees[tree].first + static_cast<size_t>(i)];
        const int64_t shared = i == 0 ? 0 : trees[tree].shared;
        plan.batches.back().push_back({.row = static_cast<int64_t>(row_of_input[input]),
                                       .begin = begin,
                                       .shared = shared,
                                       .shared_begin = shared_begin});
        begin += length_of(inputs_[input]) - shared;
      }
    }
  }
  plan.of_rank = deal(plan, shape);
  return plan;
}

}  // namespace shiftron
