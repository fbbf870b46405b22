// Dividing optimizer state over data-parallel ranks (parallel.zero = 1) changes no bit of the result.
#include <gtest/gtest.h>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

struct Learned {
  std::vector<double> loss, norm;
  std::vector<std::vector<double>> group_norms;
  TensorMap gradients, weights;  // of the last step
};

Learned learn(const RunConfig& config, int ranks, const SampleReader& read) {
  Learned whole;
  std::mutex mutex;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    const ParameterSet& set = rank.trainer->engine().parameters();
    set_weights(rank.trainer->engine().parameters());
    for (int64_t step = 1; step <= config.train.steps; ++step) {
      const StepResult result = rank.step(step, read);
      EXPECT_FALSE(result.skipped);
      if (world.rank() != 0) continue;
      whole.loss.push_back(result.loss);
      whole.norm.push_back(result.gradient_norm);
      whole.group_norms.push_back(result.group_norms);
    }
    collect(set, gradients_of, whole.gradients, mutex);
    collect(set, masters_of, whole.weights, mutex);
  });
  return whole;
}

// A prime vocabulary; in the second and third layout KV heads are fewer than tp ranks; in the third the table is tied.
RunConfig config_of(Precision precision, int tp, int pp) {
  RunConfig config = small_config({.query = 1, .key = 3, .value = 2}, precision);
  config.model.kv_heads = tp == 1 ? 2 : 1;
  config.model.tie_embeddings = pp > 1;
  config.train.steps = 4;
  config.train.global_batch = 12;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  return config;
}

TEST(Zero, ChangesNoBit) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    for (const auto& [tp, pp] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
      for (const int dp : {2, 3}) {
        for (const int64_t bucket_elements : {0, 150}) {
          RunConfig config = config_of(precision, tp, pp);
          config.parallel.bucket_elements = bucket_elements;
          const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
          const Learned whole = learn(config, tp * pp * dp, read);
          config.parallel.zero = 1;
          const Learned divided = learn(config, tp * pp * dp, read);
          SCOPED_TRACE(to_string(precision) + " tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " +
                       std::to_string(dp) + ", buckets of " + std::to_string(bucket_elements));
          EXPECT_EQ(divided.loss, whole.loss);
          EXPECT_EQ(divided.norm, whole.norm);
          EXPECT_EQ(divided.group_norms, whole.group_norms);
          EXPECT_TRUE(divided.gradients == whole.gradients);
          EXPECT_TRUE(divided.weights == whole.weights);
        }
      }
    }
  }
}

// Against one rank, whose gradients nobody exchanges.
TEST(Zero, LearnsWhatOneRankLearns) {
  for (const int dp : {2, 3}) {
    RunConfig config = config_of(Precision::fp64, 1, 1);
    const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
    const Learned alone = learn(config, 1, read);
    config.parallel.zero = 1;
    config.parallel.bucket_elements = 150;
    const Learned divided = learn(config, dp, read);
    for (size_t step = 0; step < alone.norm.size(); ++step) {
      EXPECT_NEAR(divided.loss[step] / alone.loss[step], 1, 1e-12);
      EXPECT_NEAR(divided.norm[step] / alone.norm[step], 1, 1e-11);
    }
    for (const auto& [name, values] : alone.weights) {
      EXPECT_LE(relative_difference(divided.weights.at(name), values), 1e-11) << name;
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
