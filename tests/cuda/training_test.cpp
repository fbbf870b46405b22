// Whole training steps on a GPU or the emulator, compared with the same steps on the CPU.
#include "cuda/device_training.h"

namespace shiftron::testing {
namespace {

struct Outcome {
  std::vector<double> losses, norms;
  TensorMap masters;
};

// Three steps, with an evaluation between them, which leaves no trace.
Outcome three_steps(const RunConfig& config, int ranks = 1) {
  Outcome outcome;
  std::mutex mutex;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Ledger ledger;
    {
      DeviceRank rank(config, world, ledger);
      for (int64_t step = 1; step <= 3; ++step) {
        const StepResult result = rank.step(step);
        if (step == 2) rank.trainer->evaluate(1, rank.reader(1));
        const std::lock_guard lock(mutex);
        if (world.rank() > 0) continue;
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.gradient_norm);
      }
      collect(rank.parameters(), masters_of, outcome.masters, mutex);
      EXPECT_EQ(rank.trainer->arena_peaks(), rank.plan);
    }
    for (const char* category : {"activations", "scratch", "parameters", "gradients", "optimizer"}) {
      EXPECT_EQ(ledger.memory().at(category), 0) << category << " is left";
    }
  });
  return outcome;
}

// `bound`: of relative differences; the update divides by the root of a square, so weights differ by more than sums.
void expect_like_the_cpu(const RunConfig& config, double bound, int ranks = 1) {
  RunConfig alone = config;
  alone.parallel = {.recompute = config.parallel.recompute};
  const Outcome expected = three_steps(on_device(alone, DeviceChoice::cpu)),
                found = three_steps(on_device(config, DeviceChoice::cuda), ranks);
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], bound * expected.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 10 * bound * expected.norms[i]) << "step " << i + 1;
  }
  ASSERT_EQ(found.masters.size(), expected.masters.size());
  for (const auto& [name, values] : expected.masters) {
    EXPECT_LE(relative_difference(found.masters.at(name), values), 100 * bound) << name;
  }
}

class CudaTraining : public ::testing::TestWithParam<NamedShift> {};

TEST_P(CudaTraining, Float32IsLikeTheCpu) {
  expect_like_the_cpu(small_config(GetParam().shift, Precision::fp32), 1e-6);
}

TEST_P(CudaTraining, Bfloat16IsLikeTheCpu) {
  expect_like_the_cpu(small_config(GetParam().shift, Precision::bf16), 4e-3);  // a rounding of bfloat16
}

INSTANTIATE_TEST_SUITE_P(Shifts, CudaTraining, ::testing::ValuesIn(all_shifts()),
                         [](const auto& shift) { return shift.param.name; });

TEST(CudaTraining, EveryRecomputationIsLikeTheCpu) {
  for (const RecomputeKind recompute : {RecomputeKind::selective, RecomputeKind::full}) {
    RunConfig config = small_config(all_shifts()[1].shift, Precision::fp32);
    config.parallel.recompute = recompute;
    config.model.tie_embeddings = true;
    expect_like_the_cpu(config, 1e-6);
  }
}

// Heads as cuDNN takes them.
TEST(CudaTraining, AttentionOfTheLibraryIsLikeTheCpu) {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::bf16);
  config.model.hidden = 32;
  config.model.head_dim = 8;
  config.train.sequence_length = 16;
  expect_like_the_cpu(config, 4e-3);
}

TEST(CudaTraining, LayoutsAreLikeOneRankOfTheCpu) {
  using enum PipelineKind;
  const std::vector<std::pair<ParallelSection, int>> layouts = {
      {{.tp = 2}, 2},
      {{.zero = 1, .bucket_elements = 300}, 2},
      {{.pp = 2, .pipeline = zb_h1}, 2},
      {{.tp = 2, .pp = 2, .chunks = 2, .zero = 1, .pipeline = interleaved}, 8}};
  for (const auto& [parallel, ranks] : layouts) {
    RunConfig config = small_config(all_shifts()[1].shift, Precision::fp32);
    config.model.layers = 4;
    config.train.micro_batch = 1;
    config.parallel = parallel;
    SCOPED_TRACE(::testing::Message() << "tp " << parallel.tp << " pp " << parallel.pp << ", " << ranks << " ranks");
    NEED_GPUS(ranks);
    expect_like_the_cpu(config, 1e-6, ranks);
  }
}

// The norms of tp, keys and values that it shares: a communicator of each data-parallel rank sums them.
TEST(CudaTraining, CopiesOfDataParallelRanksAreAlikeToTheBit) {
  constexpr int kRanks = 8;
  NEED_GPUS(kRanks);
  RunConfig config = on_device(small_config(all_shifts()[1].shift, Precision::fp32), DeviceChoice::cuda);
  config.model.kv_heads = 1;
  config.train.micro_batch = 1;
  config.parallel.tp = 4;
  using Copy = std::map<std::string, std::vector<double>>;
  std::map<int, Copy> masters[2], moments[2];  // of each dp, by tp and name
  std::mutex mutex;
  run_thread_ranks(kRanks, [&](HostCommunicator& world) {
    Ledger ledger;
    DeviceRank rank(config, world, ledger);
    for (int64_t step = 1; step <= 3; ++step) rank.step(step);
    const Coordinates at = rank.trainer->engine().groups().at;
    const std::lock_guard lock(mutex);
    for (const auto& parameter : rank.parameters().parameters()) {
      const Range all{0, parameter->box.extent.count()};
      masters[at.dp][at.tp][parameter->spec.name] = masters_of(rank.parameters(), *parameter, all);
      moments[at.dp][at.tp][parameter->spec.name] = first_moments_of(rank.parameters(), *parameter, all);
    }
  });
  for (const auto& of_dp : {masters, moments}) {
    for (const auto& [tp, copy] : of_dp[0]) {
      for (const auto& [name, values] : copy) EXPECT_EQ(of_dp[1].at(tp).at(name), values) << name << ", tp " << tp;
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
