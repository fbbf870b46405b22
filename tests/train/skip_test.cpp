// Skipped steps: a NaN or infinity on one rank, or no target on any, makes all ranks skip together.
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

RunConfig config_of(Precision precision, int zero) {
  RunConfig config = small_config({.query = 1, .key = 3, .value = 2}, precision);
  config.model.kv_heads = 1;  // shared by both tp ranks
  config.model.tie_embeddings = true;
  config.parallel.tp = 2;
  config.parallel.zero = zero;
  config.parallel.bucket_elements = zero == 0 ? 0 : 200;
  config.optimizer.warmup = 4;
  return config;
}

// Everything that a step may change and this rank keeps, as bits.
std::vector<double> state_of(const ParameterSet& set) {
  std::vector<double> state;
  for (const auto& parameter : set.parameters()) {
    for (const double value : masters_of(set, *parameter, parameter->kept)) state.push_back(value);
    for (const Tensor& tensor : {parameter->first_moment, parameter->second_moment}) {
      for (int64_t i = 0; i < tensor.count(); ++i) state.push_back(element(tensor, i));
    }
  }
  return state;
}

struct Rank : RankTrainer {
  Rank(const RunConfig& run_config, HostCommunicator& world)
      : RankTrainer(run_config, world), samples(random_samples(config.train.sequence_length, config.model.vocab)) {
    set_weights(parameters());
  }
  ParameterSet& parameters() { return trainer->engine().parameters(); }
  StepResult take(int64_t number) { return step(number, samples); }
  // `spoil` runs when the step's first rows are read.
  StepResult take_spoilt(int64_t number, const std::function<void()>& spoil) {
    bool spoilt = false;
    return step(number, [&](int64_t first, int64_t count, HostBatch& batch) {
      if (!spoilt) spoil();
      spoilt = true;
      samples(first, count, batch);
    });
  }
  std::vector<double> state() { return state_of(parameters()); }
  SampleReader samples;
};

void expect_skipped(Rank& rank, const StepResult& result, const std::vector<double>& before, int64_t in_row,
                    const std::string& what) {
  EXPECT_TRUE(result.skipped) << what;
  EXPECT_EQ(rank.state(), before) << what;
  EXPECT_EQ(result.skipped_in_row, in_row) << what;
}

// An element of a parameter.
struct Spot {
  const char* name;
  int64_t index;
};

// `poison` spoils one rank in step 2; after the step `healed` gets its value back on all ranks, because its owners send
// it to the others. Step 3 must be as if step 2 had never been: the same bits as on ranks that go from step 1 to
// step 3.
void expect_all_skip(const RunConfig& config, int bad_rank, const std::string& what,
                     const std::function<void(Rank&)>& poison, const std::optional<Spot>& healed = {}) {
  run_thread_ranks(4, [&](HostCommunicator& world) {
    Rank rank(config, world);
    EXPECT_FALSE(rank.take(1).skipped);
    const std::vector<double> before = rank.state();
    const auto spot = [&] { return rank.parameters().find(healed->name)->weight; };
    const double good = healed ? element(spot(), healed->index) : 0;
    const StepResult result = rank.take_spoilt(2, [&] {
      if (world.rank() == bad_rank) poison(rank);
    });
    rank.parameters().await_weights(rank.stream, [](const ParameterSpec&) { return true; });
    if (healed) set_element(spot(), healed->index, good);
    expect_skipped(rank, result, before, 1, what + ", seen by rank " + std::to_string(world.rank()));
    EXPECT_EQ(rank.trainer->state(), (TrainerState{.applied_updates = 1, .skipped_updates = 1, .skipped_in_row = 1}));
    EXPECT_FALSE(rank.take(3).skipped) << what;
    EXPECT_EQ(rank.trainer->state(), (TrainerState{.applied_updates = 2, .skipped_updates = 1}));
    EXPECT_NE(rank.state(), before) << what;

    Rank without(config, world);
    without.take(1);
    without.take(3);
    EXPECT_EQ(rank.state(), without.state()) << what;
  });
}

// By parallel.zero.
class Skip : public ::testing::TestWithParam<int> {};

// Split over tp, whole on each tp rank, shared KV head, its taps, tied table: each is summed in another way.
constexpr std::array<const char*, 5> kTensors = {"layers.1.mlp.down.weight", "layers.0.attention_norm.weight",
                                                 "layers.1.attention.key.weight", "layers.0.attention.shift_value",
                                                 "embedding.weight"};

TEST_P(Skip, ABadGradientOnOneRankStopsAll) {
  for (const char* name : kTensors) {
    for (int bad_rank = 0; bad_rank < 4; ++bad_rank) {
      const double value = bad_rank == 2 ? kInfinity : bad_rank == 3 ? -kInfinity : kNaN;
      expect_all_skip(config_of(Precision::fp32, GetParam()), bad_rank,
                      std::string(name) + " of rank " + std::to_string(bad_rank), [&](Rank& rank) {
                        const Parameter* parameter = rank.parameters().find(name);
                        ASSERT_NE(parameter, nullptr) << name;
                        set_element(parameter->gradient, parameter->gradient.count() - 1, value);
                      });
    }
  }
}

TEST_P(Skip, ABadWeightOnOneRankStopsAll) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    for (int bad_rank = 0; bad_rank < 4; ++bad_rank) {
      const Spot spot{"layers.1.mlp_norm.weight", 5};
      expect_all_skip(
          config_of(precision, GetParam()), bad_rank,
          to_string(precision) + " weight of rank " + std::to_string(bad_rank),
          [&](Rank& rank) { set_element(rank.parameters().find(spot.name)->weight, spot.index, kNaN); }, spot);
    }
  }
}

TEST_P(Skip, StepsWithoutTargetsAreSkippedAndCounted) {
  run_thread_ranks(4, [&](HostCommunicator& world) {
    Rank rank(config_of(Precision::fp32, GetParam()), world);
    const SampleReader nothing = [&](int64_t first, int64_t count, HostBatch& batch) {
      rank.samples(first, count, batch);
      std::ranges::fill(batch.targets, -1);
    };
    rank.take(1);
    const std::vector<double> before = rank.state();
    for (int64_t step = 2; step <= 4; ++step) {
      const StepResult result = rank.step(step, nothing);
      expect_skipped(rank, result, before, step - 1, "step " + std::to_string(step));
      EXPECT_EQ(result.counted, 0);
      EXPECT_TRUE(std::isnan(result.loss)) << "there is none";
      EXPECT_EQ(result.gradient_norm, 0);
    }
    const StepResult last = rank.take(5);
    EXPECT_FALSE(last.skipped);
    EXPECT_EQ(last.skipped_updates, 3);
    EXPECT_EQ(last.skipped_in_row, 0);
  });
}

// A rank without targets is not a step without targets; the loss is the mean over those that there are.
TEST_P(Skip, OneReplicaWithoutTargetsSkipsNothing) {
  run_thread_ranks(4, [&](HostCommunicator& world) {
    Rank rank(config_of(Precision::fp64, GetParam()), world);
    const SampleReader half = [&](int64_t first, int64_t count, HostBatch& batch) {
      rank.samples(first, count, batch);
      if (rank.trainer->engine().groups().at.dp == 1) std::ranges::fill(batch.targets, -1);
    };
    const StepResult result = rank.step(1, half);
    EXPECT_FALSE(result.skipped);

    RunConfig alone = config_of(Precision::fp64, GetParam());
    alone.parallel.tp = 1;
    alone.train.global_batch = alone.train.micro_batch;  // what dp rank 0 reads
    const auto single = make_single_world();
    Rank reference(alone, *single);
    const StepResult expected = reference.take(1);
    EXPECT_EQ(result.counted, expected.counted);
    EXPECT_NEAR(result.loss / expected.loss, 1, 1e-12);
    EXPECT_NEAR(result.gradient_norm / expected.gradient_norm, 1, 1e-10);
  });
}

// Of a step that is taken every rank learns the same, in every layout; clipping depends on it.
TEST_P(Skip, LossAndGradientNormDoNotDependOnTheLayout) {
  RunConfig config = config_of(Precision::fp64, GetParam());
  const auto single = make_single_world();
  config.parallel.tp = 1;
  Rank reference(config, *single);
  const StepResult expected = reference.take(1);
  EXPECT_GT(expected.gradient_norm, 0.1);
  struct Layout {
    int tp, pp, ranks;
  };
  for (const Layout layout : {Layout{2, 1, 2}, {2, 1, 4}, {4, 1, 4}, {1, 2, 2}, {2, 2, 4}}) {
    config.parallel.tp = layout.tp;
    config.parallel.pp = layout.pp;
    run_thread_ranks(layout.ranks, [&](HostCommunicator& world) {
      Rank rank(config, world);
      const StepResult result = rank.take(1);
      EXPECT_NEAR(result.loss / expected.loss, 1, 1e-12);
      EXPECT_NEAR(result.gradient_norm / expected.gradient_norm, 1, 1e-10) << "tp " << layout.tp << " pp " << layout.pp;
      for (size_t group = 0; group < expected.group_norms.size(); ++group) {
        EXPECT_NEAR(result.group_norms[group], expected.group_norms[group], 1e-10)
            << rank.trainer->group_names()[group] << ", tp " << layout.tp << " pp " << layout.pp;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, Skip, ::testing::Values(0, 1), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace shiftron::testing
