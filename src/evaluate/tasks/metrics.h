// Metrics: values of items, tasks and groups, with their standard errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/tasks/answer_text.h"
#include "evaluate/tasks/request.h"

namespace shiftron {

struct Item;

// How an item's answers become a number.
enum class ItemScore {
  likeliest,             // 1 if the gold choice has the highest log-likelihood, else 0
  likeliest_per_length,  // the same with log-likelihoods divided by the choice's code points
  likeliest_per_byte,    // the same with log-likelihoods divided by the choice's bytes in UTF-8
  log_likelihood,        // of the first answer
  greedy,                // 1 if the first answer is greedy
  same_text,             // 1 if the generated text equals one of the right answers
  same_math,             // 1 by boxed or dollar answer (math_answers.h)
  same_minerva,          // 1 by minerva_math's answer, compared as texts
  rolling_words,         // log-likelihood, weighted by Item::words
  rolling_bytes,         // log-likelihood, weighted by Item::bytes
};

// How items' values become the task's value.
enum class Aggregation {
  mean,
  perplexity,           // exp(−mean)
  weighted_perplexity,  // exp(−sum of values / sum of weights)
  bits,                 // −sum of values / (sum of weights · ln 2)
};

struct Metric {
  std::string name;  // in reports
  ItemScore scorer = ItemScore::likeliest;
  Aggregation aggregation = Aggregation::mean;
  bool higher_is_better = true;
  AnswerFilter filter{};          // of a generated text
  AnswerComparison comparison{};  // same_text
};
// The metric's name with its filter, if it has one: "exact_match,strict-match".
std::string name_with_filter(const Metric& metric);

// Metrics that built-in tasks have under the same names.
inline const Metric kAccuracy{"acc", ItemScore::likeliest};
inline const Metric kAccuracyPerLength{"acc_norm", ItemScore::likeliest_per_length};
inline const Metric kGreedyAccuracy{"acc", ItemScore::greedy};
inline const Metric kExactMatch{"exact_match", ItemScore::same_text};
inline const Metric kPerplexity{"perplexity", ItemScore::log_likelihood, Aggregation::perplexity, false};
inline const Metric kWordPerplexity{"word_perplexity", ItemScore::rolling_words, Aggregation::weighted_perplexity,
                                    false};
inline const Metric kBytePerplexity{"byte_perplexity", ItemScore::rolling_bytes, Aggregation::weighted_perplexity,
                                    false};
inline const Metric kBitsPerByte{"bits_per_byte", ItemScore::rolling_bytes, Aggregation::bits, false};

// All metrics that a user's task may name. In a built-in task, the same name may have another scorer.
std::vector<Metric> known_metrics();

struct MetricValue {
  double value = 0;
  double weight = 1;
  bool is_whole = false;  // an integer, which the harness writes without ".0"
};

// `answers`: one for each request of the item.
MetricValue score(const Metric& metric, const Item& item, std::span<const Answer> answers);

// The index of the largest value: the first of equal ones, or the first NaN.
size_t index_of_largest(std::span<const double> values);

struct Estimate {
  double value = 0;
  std::optional<double> error;  // standard error; nothing if undefined
};

// Called during long computations: `done` of `all` pieces are done.
using Pieces = std::function<void(int64_t done, int64_t all)>;

// The value of one task. `resamples`: bootstrap draws for the error of a perplexity, 0 for none; `pieces` reports their
// progress and may be empty. Throws Error(crash) if there are no values.
Estimate aggregate(Aggregation aggregation, std::span<const MetricValue> values, int64_t resamples = 100'000,
                   const Pieces& pieces = {});

// One task of a group.
struct GroupPart {
  Estimate estimate;
  int64_t items = 0;
};
// The mean of all items of the parts, with pooled errors; no error if any part has none.
Estimate aggregate_group(std::span<const GroupPart> parts);
// The unweighted mean of the parts.
double mean_of_parts(std::span<const GroupPart> parts);

}  // namespace shiftron
