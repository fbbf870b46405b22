// The plan for scoring: equal rows once, probes at their places, packed without overlap, and balanced.
#include "evaluate/score_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/philox.h"
#include "evaluate/passes.h"

namespace shiftron::testing {
namespace {

std::vector<ScoreTokens> passes_of_two_tokens(int64_t count, int64_t longest) {
  const Philox random(3, "passes");
  std::vector<ScoreTokens> passes;
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random.uniform(drawn++) * static_cast<double>(below));
  };
  for (int64_t i = 0; i < count; ++i) {
    Tokens context, continuation;
    const int64_t before = 1 + draw(longest - 2), after = 1 + draw(longest - before);
    for (int64_t t = 0; t < before; ++t) context.push_back(static_cast<int32_t>(draw(2)));  // often the same
    for (int64_t t = 0; t < after; ++t) continuation.push_back(static_cast<int32_t>(draw(2)));
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
  const ScorePlan plan = planner.plan({.sample = {.length = 8}});
  ASSERT_EQ(plan.rows.size(), 2);
  EXPECT_EQ(plan.rows[0].ids, (Tokens{1, 2, 3}));
  EXPECT_EQ(plan.rows[0].probes, (std::vector<PlannedRow::Probe>{{1, 0}, {1, 3}, {2, 0}, {2, 1}}));
  EXPECT_EQ(plan.passes, (std::vector<std::vector<int64_t>>{{1, 3}, {2}, {0}, {2}, {4}}));
  EXPECT_EQ(plan.probes, 5);
}

TEST(ScorePlan, SamplesAreAsLongAsLeavesTheFewestTokensUnused) {
  ScorePlanner planner;
  for (int32_t row = 0; row < 6; ++row) {
    planner.add(pass_of({row, 1, 2, 3}, {4, 5}));
    planner.add(pass_of({row, 1}, {4}));  // a beginning, which is no row
  }
  EXPECT_EQ(planner.tightest_sample(8, 1, 1).length, 5);    // 6 · 5; 6 · 8 of the longest
  EXPECT_EQ(planner.tightest_sample(10, 1, 1).length, 10);  // 3 · 10, as many as 6 · 5
  EXPECT_EQ(planner.tightest_sample(10, 1, 2).length, 5);   // 3 · 5 of each rank; one has 2 · 10
  EXPECT_EQ(planner.tightest_sample(14, 1, 2).length, 10);  // 2 · 10; 3 · 5 are fewer, but 5 is less than half of 14
  EXPECT_EQ(planner.tightest_sample(10, 4, 1).length, 12);  // 3 · 12; 6 · 8
  EXPECT_EQ(planner.tightest_sample(1, 1, 1).length, 5);    // the longest row
  EXPECT_EQ(ScorePlanner().tightest_sample(1, 8, 1).length, 8);
}

// Tokens of a batch as they are read, −1 where none is; `copies` += those of its rows.
Tokens read_tokens(const ScorePlan& plan, size_t batch, int64_t length, int64_t& copies) {
  Tokens read(static_cast<size_t>(length), -1);
  for (const PlacedRow& placed : plan.batches[batch]) {
    const Tokens& ids = plan.rows[static_cast<size_t>(placed.row)].ids;
    copies += static_cast<int64_t>(ids.size());
    for (int64_t token = 0; token < static_cast<int64_t>(ids.size()); ++token) {
      int32_t& there = read.at(static_cast<size_t>(placed.place(token)));
      EXPECT_EQ(there, token < placed.shared ? ids[static_cast<size_t>(token)] : -1) << "row " << placed.row;
      there = ids[static_cast<size_t>(token)];
    }
  }
  return read;
}

TEST(ScorePlan, WhatRowsBeginWithIsReadOnce) {
  ScorePlanner planner;
  planner.add(pass_of({1, 9}, {1}));  // begins as others do, too shortly to be worth it
  for (const int32_t ending : {4, 5, 6}) planner.add(pass_of({1, 2, 3}, {ending, 0, 1}));
  for (const int32_t ending : {4, 5}) planner.add(pass_of({7, 8}, {ending, 1}));
  EXPECT_EQ(planner.tokens(), 2 + (3 + 3 * 2) + (2 + 2 * 1));
  EXPECT_EQ(planner.tightest_sample(15, 1, 1), (SampleShape{.length = 15, .attending = 2 + 3 * 5 + 2 * 3}));
  const ScorePlan plan = planner.plan({.sample = {.length = 15, .attending = 23}});
  ASSERT_EQ(plan.batches.size(), 1);
  int64_t copies = 0;
  EXPECT_EQ(read_tokens(plan, 0, 15, copies), (Tokens{1, 2, 3, 4, 0, 5, 0, 6, 0, 7, 8, 4, 5, 1, 9}));
  EXPECT_EQ(copies, 23);
  // Room for the copies of two rows only.
  const ScorePlan narrow = planner.plan({.sample = {.length = 9, .attending = 10}});
  for (size_t batch = 0; batch < narrow.batches.size(); ++batch) {
    copies = 0;
    read_tokens(narrow, batch, 9, copies);
    EXPECT_LE(copies, 10);
  }
}

// Copies cost something, so that few tokens are not shared.
TEST(ScorePlan, FewTokensAreNotShared) {
  ScorePlanner planner;
  for (int32_t row = 0; row < 6; ++row) planner.add(pass_of({1, row, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7}, {1}));
  EXPECT_EQ(planner.tokens(), 6 * 16);
  EXPECT_EQ(planner.tightest_sample(96, 1, 1), (SampleShape{.length = 96, .attending = 0}));
}

TEST(ScorePlan, EveryRowIsWholeWhereRowsShareTokens) {
  const auto passes = passes_of_two_tokens(300, 12);
  ScorePlanner planner;
  for (const ScoreTokens& pass : passes) planner.add(pass);
  const SampleShape sample = planner.tightest_sample(64, 8, 3);
  ASSERT_GT(sample.attending, sample.length);
  const ScorePlan plan = planner.plan({.sample = sample, .ranks = 3, .pair_cost = 0.5});
  std::set<int64_t> rows;
  int64_t most = 0;
  for (size_t batch = 0; batch < plan.batches.size(); ++batch) {
    int64_t copies = 0;
    read_tokens(plan, batch, sample.length, copies);
    most = std::max(most, copies);
    for (const PlacedRow& placed : plan.batches[batch]) EXPECT_TRUE(rows.insert(placed.row).second);
  }
  EXPECT_EQ(most, sample.attending);
  EXPECT_EQ(rows.size(), plan.rows.size());
}

TEST(ScorePlan, EveryPassIsAskedAndEveryRowIsReadOnce) {
  const auto passes = passes_of_two_tokens(300, 12);
  ScorePlanner planner;
  for (const ScoreTokens& pass : passes) planner.add(pass);
  for (const PlanShape& shape : {PlanShape{.sample = {.length = 12}},
                                 PlanShape{.sample = {.length = 40}, .samples = 3, .ranks = 4, .pair_cost = 0.5}}) {
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
        EXPECT_EQ(placed.begin / shape.sample.length, (behind - 1) / shape.sample.length) << "lies in two samples";
        EXPECT_TRUE(rows.insert(placed.row).second);
      }
      EXPECT_LE(behind, shape.sample.length * shape.samples);
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
  for (const ScoreTokens& pass : passes_of_two_tokens(400, 30)) planner.add(pass);
  constexpr int64_t kSample = 128, kLongest = 29;
  const ScorePlan plan = planner.plan({.sample = {.length = kSample}, .ranks = 3, .pair_cost = 1});
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
