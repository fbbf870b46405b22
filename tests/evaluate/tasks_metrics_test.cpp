// Values of items, and how they are combined for tasks and groups. Expected values are the harness's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "evaluate/tasks/metrics.h"
#include "evaluate/tasks/task.h"

namespace shiftron {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Item choices(const std::vector<std::string>& texts, int64_t gold) {
  Item item;
  item.choices = texts;
  item.gold = gold;
  item.requests.resize(texts.size());
  return item;
}

double value(ItemScore scorer, const Item& item, const std::vector<double>& likelihoods) {
  std::vector<Answer> answers;
  for (const double each : likelihoods) answers.push_back({each});
  return score({.name = "", .scorer = scorer}, item, answers).value;
}

std::vector<MetricValue> values(const std::vector<double>& plain) {
  std::vector<MetricValue> result;
  for (const double each : plain) result.push_back({each});
  return result;
}

TEST(TaskMetrics, lengths_are_code_points_of_the_choice) {
  const Item item = choices({"大学", "abc", "z"}, 0);
  EXPECT_EQ(value(ItemScore::likeliest, item, {-6, -8, -7.5}), 1);
  EXPECT_EQ(value(ItemScore::likeliest_per_length, item, {-6, -8, -7.5}), 0);
  EXPECT_EQ(value(ItemScore::likeliest_per_byte, item, {-6, -8, -7.5}), 1);
  const Item tied = choices({"iron", "oxygen", "salt"}, 1);
  EXPECT_EQ(value(ItemScore::likeliest, tied, {-1, -2, -1}), 0);
  EXPECT_EQ(value(ItemScore::likeliest_per_length, tied, {-1, -2, -1}), 0);
}

TEST(TaskMetrics, the_first_of_equals_and_the_first_nan_win) {
  const Item item = choices({"a", "b", "c"}, 0);
  EXPECT_EQ(value(ItemScore::likeliest, item, {-6, -6, -7.5}), 1);
  EXPECT_EQ(value(ItemScore::likeliest, item, {-6, kNan, -1}), 0);
  EXPECT_EQ(index_of_largest(std::vector<double>{-6, kNan, -1, kNan}), 1U);
  EXPECT_EQ(index_of_largest(std::vector<double>{-7, -6, -6}), 1U);
}

TEST(TaskMetrics, an_empty_choice_is_never_the_likeliest_per_length) {
  EXPECT_EQ(value(ItemScore::likeliest_per_length, choices({"", "b"}, 1), {-1, -500}), 1);
}

TEST(TaskMetrics, answers_must_be_as_many_as_requests) {
  EXPECT_THROW(value(ItemScore::likeliest, choices({"a", "b"}, 0), {-1}), Error);
}

TEST(TaskMetrics, means_have_the_error_of_a_sample) {
  const Estimate estimate = aggregate(Aggregation::mean, values({1, 1, 1, 0}));
  EXPECT_DOUBLE_EQ(estimate.value, 0.75);
  EXPECT_DOUBLE_EQ(estimate.error.value(), 0.25);
  EXPECT_FALSE(aggregate(Aggregation::mean, values({1})).error);
  EXPECT_EQ(aggregate(Aggregation::mean, values({1})).value, 1);
}

TEST(TaskMetrics, perplexity_is_of_items_and_its_error_a_bootstrap) {
  EXPECT_NEAR(aggregate(Aggregation::perplexity, values({-1, -3}), 0).value, 7.389056098930650, 1e-12);
  EXPECT_FALSE(aggregate(Aggregation::perplexity, values({-1, -3}), 0).error);
  EXPECT_FALSE(aggregate(Aggregation::perplexity, values({-1}), 1000).error);
  const auto four = values({-1, -3, -.5, -2});
  EXPECT_NEAR(aggregate(Aggregation::perplexity, four, 1000).error.value(), 3.154744776721, 3e-12);
  EXPECT_NEAR(aggregate(Aggregation::perplexity, four, 2000).error.value(), 2.978354938587, 3e-12);
}

TEST(TaskMetrics, a_bootstrap_tells_of_its_pieces) {
  const auto four = values({-1, -3, -.5, -2});
  std::vector<int64_t> told;
  const auto piece = [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, 20);
    told.push_back(done);
  };
  const Estimate estimate = aggregate(Aggregation::perplexity, four, 20'000, piece);
  EXPECT_EQ(estimate.error, aggregate(Aggregation::perplexity, four, 20'000).error);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_EQ(told.back(), 20);
  EXPECT_EQ(told.size(), (20 + told[0] - 1) / told[0]);
}

TEST(TaskMetrics, rolling_sums_are_divided_by_all_weights) {
  const std::vector<MetricValue> two = {{-10, 20}, {-2, 4}};
  EXPECT_NEAR(aggregate(Aggregation::bits, two).value, 0.721347520444482, 1e-12);
  EXPECT_NEAR(aggregate(Aggregation::weighted_perplexity, two).value, std::exp(0.5), 1e-12);
  EXPECT_FALSE(aggregate(Aggregation::bits, two).error);
}

TEST(TaskMetrics, groups_count_items_and_pool_errors) {
  const std::vector<GroupPart> parts = {{{0.5, 0.05}, 100}, {{0.25, 0.0144}, 900}};
  const Estimate group = aggregate_group(parts);
  EXPECT_DOUBLE_EQ(group.value, 0.275);
  EXPECT_NEAR(group.error.value(), 0.013889233, 1e-9);
  EXPECT_DOUBLE_EQ(mean_of_parts(parts), 0.375);
  std::vector<GroupPart> of_data;
  for (const auto& data : {std::vector<double>{1, 0}, {1, 1, 1, 0}}) {
    of_data.push_back({aggregate(Aggregation::mean, values(data)), static_cast<int64_t>(data.size())});
  }
  EXPECT_NEAR(aggregate_group(of_data).error.value(), 0.228217732, 1e-9);
  of_data.push_back({aggregate(Aggregation::mean, values({1})), 1});
  EXPECT_FALSE(aggregate_group(of_data).error);
  EXPECT_NEAR(aggregate_group(of_data).value, 5.0 / 7, 1e-15);
}

TEST(TaskMetrics, generated_texts_are_compared_without_outer_white_space) {
  Item item;
  item.answers = {"Paris "};
  item.requests.resize(1);
  const auto match = [&](const std::string& text) {
    return score({.name = "", .scorer = ItemScore::same_text}, item, std::vector<Answer>{{.text = text}});
  };
  EXPECT_EQ(match("\n Paris").value, 1);
  EXPECT_EQ(match("paris").value, 0);
  EXPECT_FALSE(match("Paris").is_whole);
}

}  // namespace
}  // namespace shiftron
