// The plan of scoring: equal rows once, probes at their places, packed without overlap, and balanced.
#include "evaluate/score_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/philox.h"

namespace shiftron::testing {
namespace {

using Tokens = std::vector<int32_t>;

ScoreTokens pass_of(Tokens context, const Tokens& continuation) {
  const auto first = static_cast<int64_t>(context.size()) - 1;
  context.insert(context.end(), continuation.begin(), continuation.end() - 1);
  return {.input = std::move(context), .first = first, .targets = continuation};
}

std::vector<ScoreTokens> random_passes(int64_t count, int64_t longest) {
  const Philox random(3, "passes");
  std::vector<ScoreTokens> passes;
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random.uniform(drawn++) * static_cast<double>(below));
  };
  for (int64_t i = 0; i < count; ++i) {
    Tokens context, continuation;
    const int64_t before = 1 + draw(longest - 2), behind = 1 + draw(longest - before);
    for (int64_t t = 0; t < before; ++t) context.push_back(static_cast<int32_t>(draw(2)));  // alike often
    for (int64_t t = 0; t < behind; ++t) continuation.push_back(static_cast<int32_t>(draw(2)));
    passes.push_back(pass_of(context, continuation));
  }
  return passes;
}

// What pass `number` asks, as the plan has it: (tokens up to the position, target).
std::vector<std::pair<Tokens, int32_t>> asked(const ScorePlan& plan, size_t number) {
  std::vector<std::pair<Tokens, int32_t>> all;
  for (const int64_t probe : plan.passes[number]) {
    const auto row = std::ranges::find_if(plan.rows, [&](const PlannedRow& one) {
      return probe >= one.first_probe && probe < one.first_probe + static_cast<int64_t>(one.probes.size());
    });
    const auto [position, target] = row->probes[static_cast<size_t>(probe - row->first_probe)];
    all.push_back({Tokens(row->ids.begin(), row->ids.begin() + position + 1), target});
  }
  return all;
}

TEST(ScorePlan, OneRowForWhatIsReadAlike) {
  ScorePlanner planner;
  planner.add(pass_of({1, 2}, {3, 1}));
  planner.add(pass_of({1, 2, 3}, {0}));  // the same row, split elsewhere
  planner.add(pass_of({1, 2}, {0}));     // its beginning
  planner.add(pass_of({1, 2, 3}, {0}));  // once more
  planner.add(pass_of({1, 3}, {0}));
  const ScorePlan plan = planner.plan({.length = 8});
  ASSERT_EQ(plan.rows.size(), 2);
  EXPECT_EQ(plan.rows[0].ids, (Tokens{1, 2, 3}));
  EXPECT_EQ(plan.rows[0].probes, (std::vector<PlannedRow::Probe>{{1, 0}, {1, 3}, {2, 0}, {2, 1}}));
  EXPECT_EQ(plan.passes, (std::vector<std::vector<int64_t>>{{1, 3}, {2}, {0}, {2}, {4}}));
  EXPECT_EQ(plan.probes, 5);
}

TEST(ScorePlan, EveryPassIsAskedAndEveryRowIsReadOnce) {
  const auto passes = random_passes(300, 12);
  ScorePlanner planner;
  for (const ScoreTokens& pass : passes) planner.add(pass);
  for (const PlanShape& shape :
       {PlanShape{.length = 12}, PlanShape{.length = 40, .samples = 3, .ranks = 4, .pair_cost = 0.5}}) {
    const ScorePlan plan = planner.plan(shape);
    for (size_t i = 0; i < passes.size(); ++i) {
      const auto found = asked(plan, i);
      ASSERT_EQ(found.size(), passes[i].targets.size());
      for (size_t j = 0; j < found.size(); ++j) {
        EXPECT_EQ(found[j].second, passes[i].targets[j]);
        EXPECT_EQ(found[j].first, Tokens(passes[i].input.begin(),
                                         passes[i].input.begin() + passes[i].first + static_cast<int64_t>(j) + 1));
      }
    }
    std::set<int64_t> rows, batches;
    for (const auto& batch : plan.batches) {
      int64_t behind = 0;
      for (const PlacedRow& placed : batch) {
        const auto length = static_cast<int64_t>(plan.rows[static_cast<size_t>(placed.row)].ids.size());
        EXPECT_GE(placed.begin, behind);
        behind = placed.begin + length;
        EXPECT_EQ(placed.begin / shape.length, (behind - 1) / shape.length) << "lies in two samples";
        EXPECT_TRUE(rows.insert(placed.row).second);
      }
      EXPECT_LE(behind, shape.length * shape.samples);
    }
    EXPECT_EQ(rows.size(), plan.rows.size());
    for (const auto& own : plan.of_rank) {
      for (const int64_t batch : own) EXPECT_TRUE(batches.insert(batch).second);
    }
    EXPECT_EQ(batches.size(), plan.batches.size());
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      for (size_t j = 0; j < plan.rows.size(); ++j) {
        const Tokens &a = plan.rows[i].ids, &b = plan.rows[j].ids;
        EXPECT_FALSE(i != j && a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin()))
            << i << " begins " << j;
      }
    }
  }
}

TEST(ScorePlan, RanksGetAlikeMuch) {
  ScorePlanner planner;
  for (const ScoreTokens& pass : random_passes(400, 30)) planner.add(pass);
  constexpr int64_t kSample = 128, kLongest = 29;
  const ScorePlan plan = planner.plan({.length = kSample, .ranks = 3, .pair_cost = 1});
  std::vector<int64_t> costs;
  int64_t tokens = 0;
  for (const auto& own : plan.of_rank) {
    int64_t& cost = costs.emplace_back(0);
    for (const int64_t batch : own) {
      cost += kSample;
      for (const PlacedRow& placed : plan.batches[static_cast<size_t>(batch)]) {
        const auto length = static_cast<int64_t>(plan.rows[static_cast<size_t>(placed.row)].ids.size());
        cost += length * (length + 1) / 2;
        tokens += length;
      }
    }
  }
  const auto [least, most] = std::ranges::minmax(costs);
  EXPECT_LE(most - least, kSample + kSample * (kLongest + 1) / 2) << "more than one batch";
  EXPECT_LE(static_cast<int64_t>(plan.batches.size()) * kSample, tokens * 102 / 100 + kSample) << "room is left";
}

}  // namespace
}  // namespace shiftron::testing
