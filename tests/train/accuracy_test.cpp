// Accuracy and loss by source, compared with the most likely tokens according to the losses of all tokens.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <mutex>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kSamples = 4;  // of a step

// Targets by the number of a row, counted over all samples.
SampleReader with_targets(const RunConfig& config, const std::function<int32_t(int64_t row)>& target) {
  const int64_t length = config.train.sequence_length;
  return [=, samples = random_samples(length, config.model.vocab)](int64_t first, int64_t count, HostBatch& batch) {
    samples(first, count, batch);
    for (int64_t i = 0; i < count * length; ++i) batch.targets[static_cast<size_t>(i)] = target(first * length + i);
  };
}

// The token with the smallest loss of each row, the lowest of several.
std::vector<int32_t> likeliest_tokens(RankTrainer& rank, const RunConfig& config) {
  const auto rows = static_cast<size_t>(kSamples * config.train.sequence_length);
  std::vector<double> smallest(rows, INFINITY);
  std::vector<int32_t> tokens(rows, -1);
  for (int32_t token = 0; token < config.model.vocab; ++token) {
    const Totals totals;
    const SampleReader read = with_targets(config, [&](int64_t) { return token; });
    const auto visit = [&](int index, const Tensor& losses) {
      for (int64_t i = 0; i < losses.count(); ++i) {
        const auto row = static_cast<size_t>(index * losses.count() + i);
        const double loss = losses.dtype() == DType::float64 ? losses.data<double>()[i] : losses.data<float>()[i];
        if (loss < smallest[row]) tokens[row] = token, smallest[row] = loss;
      }
    };
    rank.trainer->engine().evaluate(rank.trainer->microbatches(), rank.reader(1, read), totals.tensor(), visit);
  }
  return tokens;
}

// A third of the rows has the most likely token as its target, a third another one, a third none.
int32_t mixed_target(const std::vector<int32_t>& likeliest, const RunConfig& config, int64_t row) {
  const int32_t token = likeliest[static_cast<size_t>(row)];
  return row % 3 == 0 ? token : row % 3 == 1 ? static_cast<int32_t>((token + 1) % config.model.vocab) : -1;
}

TEST(Accuracy, IsTheShareOfTheMostLikelyTokens) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    const RunConfig config = small_config({}, precision);
    ASSERT_EQ(config.train.global_batch, kSamples);
    const auto world = make_single_world();
    RankTrainer rank(config, *world);
    set_weights(rank.trainer->engine().parameters());
    const std::vector<int32_t> likeliest = likeliest_tokens(rank, config);
    const std::vector<std::function<int32_t(int64_t)>> targets = {
        [&](int64_t row) { return likeliest[static_cast<size_t>(row)]; },
        [&](int64_t row) {
          return (likeliest[static_cast<size_t>(row)] + 1) % static_cast<int32_t>(config.model.vocab);
        },
        [&](int64_t row) { return mixed_target(likeliest, config, row); }, [](int64_t) { return -1; }};
    const std::vector<double> expected = {1, 0, 0.5, NAN};
    for (size_t i = 0; i < targets.size(); ++i) {
      const SampleReader read = with_targets(config, targets[i]);
      const EvaluationResult found = *rank.trainer->evaluate(rank.trainer->microbatches(), rank.reader(1, read));
      RankTrainer training(config, *world);
      set_weights(training.trainer->engine().parameters());
      const double of_step = training.step(1, read).accuracy;
      EXPECT_TRUE(found.all.accuracy == expected[i] || (found.all.counted == 0 && std::isnan(expected[i]))) << i;
      EXPECT_TRUE(of_step == expected[i] || (std::isnan(of_step) && std::isnan(expected[i]))) << i << ": " << of_step;
      EXPECT_EQ(std::isnan(found.all.accuracy), std::isnan(found.all.loss)) << i;
    }
  }
}

// The lowest token is the most likely one then, and no more than its targets are correct.
TEST(Accuracy, OfEqualLogitsIsTheShareOfTheLowestToken) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    const RunConfig config = small_config({}, precision);
    const auto world = make_single_world();
    RankTrainer rank(config, *world);
    for (const auto& parameter : rank.trainer->engine().parameters().parameters()) {
      if (parameter->spec.part == Part::head) fill_zero(rank.stream, parameter->weight);
    }
    const SampleReader read = with_targets(config, [](int64_t row) { return row % 4; });
    EXPECT_EQ(rank.trainer->evaluate(rank.trainer->microbatches(), rank.reader(1, read))->all.accuracy, 0.25);
  }
}

// Samples 0, 2 and 3 are of the first source and sample 1 of the second: a microbatch holds two samples.
EvaluationResult evaluate_sources(const RunConfig& config, int ranks, const SampleReader& read, bool apart) {
  EvaluationResult result;
  std::mutex mutex;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    set_weights(rank.trainer->engine().parameters());
    const ParallelLayout layout = make_layout(config.parallel, ranks);
    const int64_t length = config.train.sequence_length;
    const auto sources = [&, dp = rank.trainer->engine().groups().at.dp](int index) {
      std::vector<SourceTotals::Rows> rows;
      for (int64_t i = 0; i < config.train.micro_batch; ++i) {
        const int64_t sample = (int64_t{index} * layout.dp + dp) * config.train.micro_batch + i;
        rows.push_back({.source = sample == 1 ? 1 : 0, .begin = i * length, .end = (i + 1) * length});
      }
      return rows;
    };
    const auto found = apart ? rank.trainer->evaluate(rank.trainer->microbatches(), rank.reader(1, read), {}, sources)
                             : rank.trainer->evaluate(rank.trainer->microbatches(), rank.reader(1, read));
    const std::lock_guard lock(mutex);
    result = *found;
  });
  return result;
}

TEST(Accuracy, EachSourceIsReportedByItself) {
  RunConfig config = small_config({}, Precision::fp64);
  config.evaluation.every = 1;  // so that memory for it is planned
  config.data.validation = {{.directory = "first"}, {.directory = "second"}};
  std::vector<int32_t> likeliest;
  {
    const auto world = make_single_world();
    RankTrainer rank(config, *world);
    set_weights(rank.trainer->engine().parameters());
    likeliest = likeliest_tokens(rank, config);
  }
  const int64_t length = config.train.sequence_length;
  // Of the first source a third is correct, of the second all.
  const auto target = [&](int64_t row) {
    const int32_t token = likeliest[static_cast<size_t>(row)];
    return row / length == 1 || row % 3 == 0 ? token : static_cast<int32_t>((token + 1) % config.model.vocab);
  };
  const auto of_source = [&](int source) {
    return with_targets(config,
                        [&, source](int64_t row) { return (row / length == 1) == (source == 1) ? target(row) : -1; });
  };
  const SampleReader read = with_targets(config, target);
  const EvaluationResult whole = evaluate_sources(config, 1, read, false);
  ASSERT_TRUE(whole.sources.empty());
  struct Layout {
    int tp, pp, dp;
  };
  for (const Layout& layout : {Layout{1, 1, 1}, Layout{2, 1, 1}, Layout{1, 2, 1}, Layout{1, 1, 2}, Layout{2, 2, 2}}) {
    RunConfig split = config;
    split.parallel.tp = layout.tp;
    split.parallel.pp = layout.pp;
    const std::string what = ::testing::PrintToString(std::array{layout.tp, layout.pp, layout.dp});
    const int ranks = layout.tp * layout.pp * layout.dp;
    const EvaluationResult found = evaluate_sources(split, ranks, read, true);
    ASSERT_EQ(found.sources.size(), 2u) << what;
    EXPECT_EQ(found.all.loss, evaluate_sources(split, ranks, read, false).all.loss) << what;  // bit by bit
    EXPECT_EQ(found.all.accuracy, whole.all.accuracy) << what;
    EXPECT_EQ(found.sources[0].accuracy, 1.0 / 3) << what;
    EXPECT_EQ(found.sources[1].accuracy, 1) << what;
    for (size_t source = 0; source < 2; ++source) {
      const EvaluationResult alone = evaluate_sources(config, 1, of_source(static_cast<int>(source)), false);
      EXPECT_NEAR(found.sources[source].loss, alone.all.loss, 1e-12) << what;
      EXPECT_EQ(found.sources[source].counted, alone.all.counted) << what;
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
