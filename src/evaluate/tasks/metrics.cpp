// Values, means and errors as the harness computes them: plain sums in the order of items.
#include "evaluate/tasks/metrics.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/check.h"
#include "core/shared_tasks.h"
#include "evaluate/tasks/item.h"
#include "evaluate/tasks/math_answers.h"
#include "evaluate/tasks/python_random.h"
#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

constexpr int64_t kResamplesOfSeed = 1000;  // each thousand resamples has its own generator

double as_double(size_t count) {
  return static_cast<double>(count);
}

MetricValue likeliest(const Item& item, std::span<const Answer> answers, double (*length)(const std::string&)) {
  std::vector<double> values;
  for (size_t i = 0; i < answers.size(); ++i) values.push_back(answers[i].log_likelihood / length(item.choices.at(i)));
  return {index_of_largest(values) == static_cast<size_t>(item.gold) ? 1.0 : 0.0};
}

MetricValue whole(bool is_right) {
  return {is_right ? 1.0 : 0.0, 1, true};
}

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / as_double(values.size());
}

double sample_deviation(std::span<const double> values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / (as_double(values.size()) - 1));
}

// Fills `drawn` with perplexities of resampled items.
void draw(std::span<const double> values, uint64_t seed, std::span<double> drawn) {
  const auto count = static_cast<int64_t>(values.size());
  python::Random random(seed);
  for (double& perplexity : drawn) {
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += values[static_cast<size_t>(random.choice(count))];
    perplexity = std::exp(-(sum / static_cast<double>(count)));
  }
}

// The standard deviation of the resampled perplexities.
std::optional<double> bootstrap_error(std::span<const double> values, int64_t resamples, const Pieces& pieces) {
  const int64_t piece = std::min(kResamplesOfSeed, resamples);
  if (resamples < 2) return std::nullopt;
  const int64_t seeds = resamples / piece;
  std::vector<double> drawn(static_cast<size_t>(seeds * piece));
  const int64_t at_once = std::max(1U, std::thread::hardware_concurrency());  // one seed per thread
  for (int64_t begin = 0; begin < seeds; begin += at_once) {
    const int64_t end = std::min(seeds, begin + at_once);
    share_tasks(end - begin, at_once, [&](int64_t task) {
      const int64_t seed = begin + task;
      draw(values, static_cast<uint64_t>(seed),
           std::span(drawn).subspan(static_cast<size_t>(seed * piece), static_cast<size_t>(piece)));
    });
    if (pieces) pieces(end, seeds);
  }
  return sample_deviation(drawn);
}

}  // namespace

std::vector<Metric> known_metrics() {
  return {kAccuracy,
          kAccuracyPerLength,
          {"acc_bytes", ItemScore::likeliest_per_byte},
          kPerplexity,
          kGreedyAccuracy,
          kExactMatch,
          {"math_match", ItemScore::same_math},
          {"minerva_match", ItemScore::same_minerva},
          kWordPerplexity,
          kBytePerplexity,
          kBitsPerByte};
}

std::string name_with_filter(const Metric& metric) {
  return metric.filter.name == AnswerFilter{}.name ? metric.name : metric.name + "," + metric.filter.name;
}

MetricValue score(const Metric& metric, const Item& item, std::span<const Answer> answers) {
  CHECK(answers.size() == item.requests.size() && !answers.empty(), item.where, ": ", answers.size(), " answers to ",
        item.requests.size(), " requests");
  const Answer& first = answers[0];
  if (item.requests[0].kind == RequestKind::generate && std::isnan(first.log_likelihood)) {
    return {first.log_likelihood};  // no text was generated
  }
  const auto generated = [&] { return filtered_answer(metric.filter, first.text); };
  switch (metric.scorer) {
    case ItemScore::likeliest:
      return likeliest(item, answers, [](const std::string&) { return 1.0; });
    case ItemScore::likeliest_per_length:
      return likeliest(item, answers,
                       [](const std::string& choice) { return static_cast<double>(python::length(choice)); });
    case ItemScore::likeliest_per_byte:
      return likeliest(item, answers, [](const std::string& choice) { return as_double(choice.size()); });
    case ItemScore::log_likelihood:
      return {first.log_likelihood};
    case ItemScore::greedy:
      return whole(first.greedy);
    case ItemScore::same_text:
      return {is_any_of(generated(), item.answers, metric.comparison) ? 1.0 : 0.0};
    case ItemScore::same_math:
      return whole(is_same_math(dollar_answer(generated()), item.answers.at(0)));
    case ItemScore::same_minerva: {
      const std::string answer = normalized_minerva_answer(minerva_answer(generated()));
      return whole(!answer.empty() && answer == item.answers.at(0));
    }
    case ItemScore::rolling_words:
      return {first.log_likelihood, item.words};
    case ItemScore::rolling_bytes:
      return {first.log_likelihood, item.bytes};
  }
  throw_crash("no such scorer");
}

size_t index_of_largest(std::span<const double> values) {
  size_t largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return i;
    if (values[i] > values[largest]) largest = i;
  }
  return largest;
}

Estimate aggregate(Aggregation aggregation, std::span<const MetricValue> values, int64_t resamples,
                   const Pieces& pieces) {
  CHECK(!values.empty(), "no items");
  std::vector<double> plain;
  double sum = 0, weights = 0;
  for (const MetricValue& each : values) {
    plain.push_back(each.value);
    sum += each.value;
    weights += each.weight;
  }
  const bool alone = plain.size() == 1;  // one value gives no error
  switch (aggregation) {
    case Aggregation::mean:
      if (alone) return {mean(plain), std::nullopt};
      return {mean(plain), sample_deviation(plain) / std::sqrt(as_double(plain.size()))};
    case Aggregation::perplexity:
      if (alone) return {std::exp(-mean(plain)), std::nullopt};
      return {std::exp(-mean(plain)), bootstrap_error(plain, resamples, pieces)};
    case Aggregation::weighted_perplexity:
      return {std::exp(-(sum / weights)), std::nullopt};
    case Aggregation::bits:
      return {-(sum / weights) / std::log(2.0), std::nullopt};
  }
  throw_crash("no such aggregation");
}

Estimate aggregate_group(std::span<const GroupPart> parts) {
  CHECK(!parts.empty(), "a group without tasks");
  double items = 0, sum = 0, variance = 0;
  bool known = true;
  for (const GroupPart& part : parts) {
    const auto count = static_cast<double>(part.items);
    items += count;
    sum += part.estimate.value * count;
    known = known && part.estimate.error;
    if (known) variance += (count - 1) * (*part.estimate.error * *part.estimate.error) * count;
  }
  if (!known) return {sum / items, std::nullopt};
  return {sum / items, std::sqrt(variance / (items - as_double(parts.size())) / items)};
}

double mean_of_parts(std::span<const GroupPart> parts) {
  double sum = 0;
  for (const GroupPart& part : parts) sum += part.estimate.value;
  return sum / as_double(parts.size());
}

}  // namespace shiftron
