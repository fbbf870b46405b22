// Top-k and top-p against a definition written out, and frequencies of draws against their probabilities.
#include "evaluate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace shiftron::testing {
namespace {

// Of whole halves, so that many are equal.
std::vector<double> logits_with_ties(size_t count, uint64_t seed) {
  const Philox random(seed, "logits");
  std::vector<double> logits;
  for (size_t i = 0; i < count; ++i) logits.push_back(std::round(4 * random.normal(i)) / 2);
  return logits;
}

std::vector<double> softmax(const std::vector<double>& values) {
  std::vector<double> result;
  for (const double value : values) result.push_back(std::exp(value));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& value : result) value /= sum;
  return result;
}

// The steps of transformers, each over the whole vocabulary: divide by the temperature; set all but the k largest to
// −∞; sort upwards and set to −∞ as long as the sum of probabilities is at most 1 − p, but never the last one. Of equal
// logits the highest id goes first.
std::vector<double> reference(std::vector<double> logits, const SamplingRules& rules) {
  constexpr double kRemoved = -std::numeric_limits<double>::infinity();
  for (double& logit : logits) logit /= rules.temperature;
  std::vector<size_t> upwards(logits.size());
  std::iota(upwards.rbegin(), upwards.rend(), size_t{0});
  std::ranges::stable_sort(upwards, {}, [&](size_t token) { return logits[token]; });
  if (rules.top_k > 0) {
    for (size_t i = 0; i + static_cast<size_t>(rules.top_k) < upwards.size(); ++i) logits[upwards[i]] = kRemoved;
  }
  const std::vector<double> probabilities = softmax(logits);
  double sum = 0;
  for (const size_t token : upwards) {
    sum += probabilities[token];
    if (sum <= 1 - rules.top_p && token != upwards.back()) logits[token] = kRemoved;
  }
  return softmax(logits);
}

std::vector<double> normalised(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(Sampler, WeightsAreThoseOfTheDefinition) {
  int cut = 0;
  for (uint64_t trial = 0; trial < 20; ++trial) {
    const std::vector<double> logits = logits_with_ties(60, trial);
    for (const double temperature : {0.3, 1.0, 7.0}) {
      for (const int64_t top_k : {0, 1, 2, 17, 59, 60, 1000}) {
        for (const double top_p : {1e-9, 0.123, 0.5017, 0.9003, 0.9999, 1.0}) {
          const SamplingRules rules{.temperature = temperature, .top_k = top_k, .top_p = top_p};
          const auto expected = reference(logits, rules), found = normalised(sampling_weights(logits, rules));
          for (size_t i = 0; i < logits.size(); ++i) {
            ASSERT_NEAR(found[i], expected[i], 1e-13) << "token " << i << ", trial " << trial << ", temperature "
                                                      << temperature << ", k " << top_k << ", p " << top_p;
            ASSERT_EQ(found[i] == 0, expected[i] == 0);
          }
          cut += std::ranges::count(found, 0.0) > 0 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(cut, 1000);
}

TEST(Sampler, OfEqualLogitsTheLowestIdsStay) {
  const std::vector<double> logits = {1, 3, 3, 2, 3, 3};
  using Weights = std::vector<double>;
  EXPECT_EQ(normalised(sampling_weights(logits, {.temperature = 1, .top_k = 2})), (Weights{0, 0.5, 0.5, 0, 0, 0}));
  EXPECT_EQ(normalised(sampling_weights(logits, {.temperature = 1, .top_k = 4, .top_p = 0.5})),
            (Weights{0, 0.5, 0.5, 0, 0, 0}))
      << "two of four reach 0.5";
  EXPECT_EQ(sampling_weights(logits, {.temperature = 1, .top_p = 1e-9}), (Weights{0, 1, 0, 0, 0, 0}));
  for (const double draw : {0.01, 0.99}) EXPECT_EQ(choose_token(logits, {}, draw), 1);
}

// The value that chi-square exceeds once in a million: Wilson and Hilferty's approximation, z = 4.75.
double chi_square_limit(int64_t degrees) {
  const double spread = 2.0 / (9 * static_cast<double>(degrees));
  return static_cast<double>(degrees) * std::pow(1 - spread + 4.75 * std::sqrt(spread), 3);
}

TEST(Sampler, FrequenciesFollowTheWeights) {
  constexpr int kDraws = 20'000;
  const std::vector<double> logits = logits_with_ties(40, 3);
  const std::vector<SamplingRules> all_rules = {{.temperature = 0.9},
                                                {.temperature = 1.7, .top_k = 12},
                                                {.temperature = 1.7, .top_p = 0.8},
                                                {.temperature = 2.5, .top_k = 20, .top_p = 0.7}};
  for (const SamplingRules& rules : all_rules) {
    const Philox draws = draws_of(7, 2, 1);
    std::vector<int> drawn(logits.size());
    for (uint64_t i = 0; i < kDraws; ++i) {
      ++drawn[static_cast<size_t>(choose_token(logits, rules, draws.uniform(i)))];
    }
    // Tokens that are expected less than 10 times share a class.
    const auto chi_square = [&](const SamplingRules& assumed) {
      double sum = 0, rare = 0, rarely_drawn = 0;
      int64_t classes = 0;
      const std::vector<double> probabilities = reference(logits, assumed);
      for (size_t token = 0; token < logits.size(); ++token) {
        const double expected = probabilities[token] * kDraws;
        if (expected < 10) {
          rare += expected;
          rarely_drawn += drawn[token];
          continue;
        }
        sum += (drawn[token] - expected) * (drawn[token] - expected) / expected;
        ++classes;
      }
      if (rare >= 10) {
        sum += (rarely_drawn - rare) * (rarely_drawn - rare) / rare;
        ++classes;
      }
      EXPECT_GT(classes, 4);
      return sum / chi_square_limit(classes - 1);
    };
    EXPECT_LT(chi_square(rules), 1) << "temperature " << rules.temperature << ", k " << rules.top_k << ", p "
                                    << rules.top_p;
    SamplingRules other = rules;
    other.temperature *= 1.3;
    EXPECT_GT(chi_square(other), 1) << "too few draws to see a temperature of 30 % more";
    const std::vector<double> probabilities = reference(logits, rules);
    for (size_t token = 0; token < logits.size(); ++token) {
      EXPECT_TRUE(probabilities[token] > 0 || drawn[token] == 0) << "token " << token;
    }
  }
}

TEST(Sampler, TheLastDrawIsATokenThatMayBeDrawn) {
  const std::vector<double> logits = {0, 1, 1, -2000, -3000};  // the last two have a weight of 0 without top-k too
  const double last = std::nextafter(1.0, 0.0), first = 0x1.0p-54;
  for (const int64_t top_k : {0, 2}) {
    EXPECT_EQ(choose_token(logits, {.temperature = 1, .top_k = top_k}, last), 2);
    EXPECT_EQ(choose_token(logits, {.temperature = 1, .top_k = top_k}, first), top_k == 0 ? 0 : 1);
  }
}

TEST(Sampler, EachPromptAndSampleHasItsOwnDraws) {
  EXPECT_EQ(draws_of(3, 0, 0).uniform(5), Philox(3, "generate").uniform(5)) << "the first has the plain name";
  std::set<double> firsts;
  for (int64_t prompt = 0; prompt < 130; ++prompt) {
    for (int64_t sample = 0; sample < 13; ++sample) firsts.insert(draws_of(3, prompt, sample).uniform(0));
  }
  EXPECT_EQ(firsts.size(), 130 * 13);
}

TEST(Sampler, LogProbabilitiesAreOfTheWholeVocabulary) {
  std::vector<double> logits = logits_with_ties(50, 1);
  for (double& logit : logits) logit += 5000;
  const std::vector<double> probabilities = reference(logits_with_ties(50, 1), {.temperature = 1});
  for (int32_t token = 0; token < 50; ++token) {
    EXPECT_NEAR(log_probability_of(logits, token), std::log(probabilities[static_cast<size_t>(token)]), 1e-11);
  }
}

}  // namespace
}  // namespace shiftron::testing
