// Taps that each update projects to [0, 1] (shift.form = project), in addition to tests/train/golden_test.cpp.
#include "train/golden.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

bool is_tap(const std::string& name) {
  return name.find(".shift_") != std::string::npos;
}

// Else the oracle's case would be one of free taps.
TEST(Projection, TheOracleReachesBothEnds) {
  for (const char* seed : kGoldenSeeds) {
    const Golden golden = read_golden(std::string("project-") + seed, Precision::fp64);
    std::map<double, int> ends;
    for (const auto& [name, values] : golden.final) {
      if (!is_tap(name)) continue;
      for (const double tap : values) ++ends[tap];
    }
    EXPECT_GT(ends[0], 0) << seed;
    EXPECT_GT(ends[1], 0) << seed;
    EXPECT_GT(ends.size(), 3u) << seed;
  }
}

// A tap moves by up to 0.2 a step; those of set_weights() begin on both sides of [0, 1].
RunConfig projecting_config(int tp, int pp, int zero) {
  RunConfig config = small_config({.query = 1, .key = 1, .value = 1, .form = ShiftForm::project});
  config.train.steps = 5;
  config.train.global_batch = 12;
  config.optimizer.shift_learning_rate_scale = 20;
  config.optimizer.shift_weight_decay = 0.1;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  config.parallel.zero = zero;
  config.parallel.bucket_elements = 150;  // of which all data-parallel ranks hold parts
  return config;
}

// The masters after the last step. What each rank's products read must lie in [0, 1], other ranks' parts too.
TensorMap projected(const RunConfig& config, int ranks) {
  TensorMap masters;
  std::mutex mutex;
  const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    ParameterSet& set = rank.trainer->engine().parameters();
    set_weights(set);
    for (int64_t step = 1; step <= config.train.steps; ++step) rank.step(step, read);
    set.await_weights(rank.stream);
    for (const auto& parameter : set.parameters()) {
      if (!is_tap(parameter->spec.name)) continue;
      for (int64_t i = 0; i < parameter->weight.count(); ++i) {
        const double tap = element(parameter->weight, i);
        EXPECT_TRUE(tap >= 0 && tap <= 1) << parameter->spec.name << " " << i << " of rank " << world.rank();
      }
    }
    collect(set, masters_of, masters, mutex);
  });
  return masters;
}

TEST(Projection, IsTheSameInEveryLayout) {
  const TensorMap alone = projected(projecting_config(1, 1, 0), 1);
  struct Layout {
    int tp, pp, dp;
  };
  for (const auto& [tp, pp, dp] :
       {Layout{1, 1, 3}, {2, 2, 2}, {4, 1, 2}}) {  // the last with KV heads on two ranks each
    SCOPED_TRACE("tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " + std::to_string(dp));
    const TensorMap whole = projected(projecting_config(tp, pp, 0), tp * pp * dp);
    for (const auto& [name, values] : alone) {
      EXPECT_LE(relative_difference(whole.at(name), values), 1e-11) << name;
    }
    EXPECT_TRUE(projected(projecting_config(tp, pp, 1), tp * pp * dp) == whole) << "with zero";
  }
}

}  // namespace
}  // namespace shiftron::testing
