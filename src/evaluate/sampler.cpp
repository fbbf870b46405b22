// Temperature, top-k and top-p.
#include "evaluate/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shiftron {

namespace {

// Sets all other weights to 0.
void keep_only(const std::vector<int32_t>& kept, std::vector<double>& weights) {
  std::vector<double> all(weights.size(), 0.0);
  for (const int32_t token : kept) all[static_cast<size_t>(token)] = weights[static_cast<size_t>(token)];
  weights = std::move(all);
}

}  // namespace

std::vector<double> sampling_weights(std::span<const double> logits, const SamplingRules& rules) {
  const double best = *std::ranges::max_element(logits);
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const double logit : logits) weights.push_back(std::exp((logit - best) / rules.temperature));
  const bool cuts_to_k = rules.top_k > 0 && rules.top_k < std::ssize(logits);
  if (!cuts_to_k && rules.top_p >= 1) return weights;

  const auto ranks_first = [&](int32_t a, int32_t b) {
    const double of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::vector<int32_t> kept(logits.size());
  std::iota(kept.begin(), kept.end(), 0);
  if (cuts_to_k) {
    std::nth_element(kept.begin(), kept.begin() + rules.top_k, kept.end(), ranks_first);
    kept.resize(static_cast<size_t>(rules.top_k));
    std::ranges::sort(kept);  // the sum below must not depend on the library's nth_element
  }
  if (rules.top_p < 1) {
    double total = 0, reached = 0;
    for (const int32_t token : kept) total += weights[static_cast<size_t>(token)];
    // A heap instead of a sort: few tokens usually reach p. [taken, end) have been taken off it.
    const auto ranks_after = [&](int32_t a, int32_t b) { return ranks_first(b, a); };
    std::ranges::make_heap(kept, ranks_after);
    auto taken = kept.end();
    while (taken != kept.begin() && reached < rules.top_p * total) {
      std::pop_heap(kept.begin(), taken--, ranks_after);
      reached += weights[static_cast<size_t>(*taken)];
    }
    kept.erase(kept.begin(), taken);
  }
  keep_only(kept, weights);
  return weights;
}

int32_t choose_token(std::span<const double> logits, const SamplingRules& rules, double draw) {
  if (rules.temperature <= 0) return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  const std::vector<double> weights = sampling_weights(logits, rules);
  double left = draw * std::accumulate(weights.begin(), weights.end(), 0.0);
  int32_t chosen = 0;  // the last one with a weight, if rounding leaves something
  for (int32_t token = 0; token < std::ssize(weights) && left > 0; ++token) {
    const double weight = weights[static_cast<size_t>(token)];
    if (weight > 0) chosen = token;
    left -= weight;
  }
  return chosen;
}

double log_probability_of(std::span<const double> logits, int32_t token) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - best);
  return logits[static_cast<size_t>(token)] - best - std::log(sum);
}

Philox draws_of(uint64_t seed, int64_t prompt, int64_t sample) {
  return {seed, prompt == 0 && sample == 0 ? "generate" : fmt::format("generate {} {}", prompt, sample)};
}

}  // namespace shiftron
