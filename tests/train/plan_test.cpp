// The plan counts equal microbatches, chunks, blocks and ranks once: it must give exactly what a run that steps through
// all of them needs, and give it quickly for any accepted configuration.
#include <gtest/gtest.h>

#include <set>

#include "config/validate.h"
#include "parallel/connect_groups.h"
#include "train/rank_kinds.h"
#include "train/training_harness.h"

namespace shiftron::testing {
namespace {

RunConfig small_run() {
  RunConfig config;
  config.model = {.layers = 5,
                  .hidden = 16,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 4,
                  .ffn = 24,
                  .vocab = 37,
                  .shift = {.query = 1, .key = 1, .value = 2}};
  config.train.steps = 2;
  config.train.global_batch = 24;
  config.train.sequence_length = 8;
  config.train.precision = Precision::fp64;
  config.optimizer.learning_rate = 1e-2;
  return config;
}

RunConfig with_layout(RunConfig config, int tp, int pp, PipelineKind pipeline) {
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  config.parallel.pipeline = pipeline;
  return config;
}

void read_nothing(int64_t, int64_t, HostBatch& batch) {
  std::fill(batch.ids.begin(), batch.ids.end(), 1);
  std::fill(batch.targets.begin(), batch.targets.end(), 2);
  std::fill(batch.document_starts.begin(), batch.document_starts.end(), 0);
}

// A real step against the plan, on every rank.
void expect_planned(const RunConfig& config, int ranks) {
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Ledger planned;
    const ParallelLayout layout = make_layout(config.parallel, ranks);
    const MemoryPlan plan = plan_memory(config, layout, world.rank(), 1, planned);
    RankTrainer rank(config, world);
    if (config.evaluation.every > 0) rank.trainer->evaluate(3, rank.reader(1, read_nothing));
    rank.ledger.clear_work();
    rank.step(1, read_nothing);
    EXPECT_EQ(rank.ledger.memory(), planned.memory()) << "rank " << world.rank();
    EXPECT_EQ(rank.ledger.kernels(), planned.kernels()) << "rank " << world.rank();
    EXPECT_EQ(rank.ledger.traffic(), planned.traffic()) << "rank " << world.rank();
    EXPECT_EQ(rank.trainer->arena_peaks(), plan) << "rank " << world.rank();
  });
}

TEST(Plan, SaysWhatARunStepsThrough) {
  for (const PipelineKind pipeline : {PipelineKind::one_forward_one_backward, PipelineKind::gpipe}) {
    for (const auto& [tp, pp, dp] : {std::array{1, 1, 1}, {1, 1, 3}, {2, 2, 1}, {1, 3, 2}, {4, 2, 1}, {1, 5, 1}}) {
      for (const int64_t micro_batch : {1, 4}) {
        RunConfig config = with_layout(small_run(), tp, pp, pipeline);
        config.train.micro_batch = micro_batch;
        config.evaluation.every = dp;  // some with, all positive
        SCOPED_TRACE("tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " + std::to_string(dp) + " " +
                     to_string(pipeline) + " micro_batch " + std::to_string(micro_batch));
        expect_planned(config, tp * pp * dp);
      }
    }
  }
}

TEST(Plan, SaysWhatOtherModelsAndNumbersTake) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
      RunConfig config = with_layout(small_run(), 2, 2, PipelineKind::one_forward_one_backward);
      config.train.precision = precision;
      config.parallel.recompute = recompute;
      config.model.tie_embeddings = recompute == RecomputeKind::full;
      SCOPED_TRACE(to_string(precision) + " " + to_string(recompute));
      expect_planned(config, 4);
    }
  }
}

TEST(Plan, SaysWhatOtherOrdersOfRanksTake) {
  RunConfig config = with_layout(small_run(), 2, 2, PipelineKind::one_forward_one_backward);
  for (const RankOrder& order :
       {RankOrder{Axis::tp, Axis::pp, Axis::cp, Axis::dp}, {Axis::dp, Axis::pp, Axis::cp, Axis::tp}}) {
    config.parallel.rank_order = order;
    SCOPED_TRACE(text_of(order));
    expect_planned(config, 8);
  }
}

TEST(Plan, SaysWhatStagesThatRecomputeDifferentlyTake) {
  using enum RecomputeKind;
  RunConfig config = with_layout(small_run(), 2, 4, PipelineKind::one_forward_one_backward);
  config.parallel.stage_layers = {1, 1, 2, 1};
  config.parallel.recompute = StageRecompute({full, selective, none, none});
  expect_planned(config, 8);
}

// The same except for what is recomputed: with equally much in flight on every stage, as in gpipe.
TEST(Plan, TellsStagesThatRecomputeDifferentlyApart) {
  using enum RecomputeKind;
  RunConfig config = with_layout(small_run(), 1, 6, PipelineKind::gpipe);
  config.model.layers = 6;
  config.parallel.stage_layers = {1, 1, 1, 1, 1, 1};
  config.parallel.recompute = StageRecompute({none, none, selective, full, none, full});
  const ParallelLayout layout = make_layout(config.parallel, 6);
  const std::vector<RankKind> kinds = plan_kinds(config, layout, 1);
  ASSERT_EQ(kinds.size(), 5u);  // the last stage has the head
  for (const RankKind& kind : kinds) {
    Ledger planned;
    plan_memory(config, layout, kind.rank, 1, planned);
    EXPECT_EQ(kind.planned.memory(), planned.memory()) << kind.rank;
    EXPECT_EQ(kind.planned.kernels(), planned.kernels()) << kind.rank;
    EXPECT_EQ(kind.ranks, kind.rank == 1 ? 2 : 1) << kind.rank;
  }
  const auto kept = [&](size_t kind) { return kinds[kind].planned.memory().at("activations"); };
  EXPECT_GT(kept(1), kept(2));
  EXPECT_NE(kept(2), kept(3));  // in one layer full has nothing to save
}

// The first rank of a kind is one of it, and none before it is.
TEST(Plan, KindsNameTheirFirstRankInEveryOrder) {
  RunConfig config = with_layout(small_run(), 3, 4, PipelineKind::one_forward_one_backward);
  config.model.heads = config.model.kv_heads = 3;
  config.model.vocab = 39;
  config.train.sequence_length = 24;
  for (const RankOrder& order :
       {kUsualRankOrder, RankOrder{Axis::pp, Axis::tp, Axis::cp, Axis::dp}, {Axis::dp, Axis::cp, Axis::pp, Axis::tp}}) {
    config.parallel.rank_order = order;
    const ParallelLayout layout = make_layout(config.parallel, 24);
    const std::vector<RankKind> kinds = plan_kinds(config, layout, 1);
    std::set<int> unseen;
    for (const RankKind& kind : kinds) unseen.insert(kind.rank);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      Ledger planned;
      plan_memory(config, layout, rank, 1, planned);
      const auto kind = std::ranges::find_if(kinds, [&](const RankKind& one) {
        return one.planned.memory() == planned.memory() && one.planned.traffic() == planned.traffic();
      });
      ASSERT_NE(kind, kinds.end()) << "rank " << rank << ", " << text_of(order);
      EXPECT_LE(kind->rank, rank) << text_of(order);
      EXPECT_EQ(unseen.erase(kind->rank) == 1, kind->rank == rank) << "rank " << rank << ", " << text_of(order);
    }
    EXPECT_TRUE(unseen.empty());
  }
}

// More rows than a chunk of the loss, whole chunks and a rest; a vocabulary of several blocks.
TEST(Plan, SaysWhatChunksOfTheLossTake) {
  RunConfig config = with_layout(small_run(), 1, 1, PipelineKind::gpipe);
  config.model.layers = 1;
  config.train.global_batch = 4;
  config.train.micro_batch = 2;
  config.train.sequence_length = 1100;
  expect_planned(config, 1);
  config.model.vocab = 3001;
  config.train.global_batch = 2;
  expect_planned(with_layout(config, 2, 1, PipelineKind::gpipe), 2);
}

// Gradients of more than one block of a sum over ranks.
TEST(Plan, SaysWhatStagingTakes) {
  for (const int64_t vocab : {4100, 40000, 120011}) {
    RunConfig config = with_layout(small_run(), 1, 1, PipelineKind::gpipe);
    config.model.layers = 1;
    config.model.vocab = vocab;
    config.train.global_batch = 2;
    config.train.micro_batch = 1;
    config.train.sequence_length = 4;
    SCOPED_TRACE(vocab);
    expect_planned(config, 2);
  }
}

void expect_every_rank_is_of_a_kind(const RunConfig& config, int ranks) {
  const ParallelLayout layout = make_layout(config.parallel, ranks);
  const std::vector<RankKind> kinds = plan_kinds(config, layout, 1);
  std::map<int, int64_t> found;  // ranks like the first of each kind
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    Ledger planned;
    plan_memory(config, layout, rank, 1, planned);
    int alike = 0;
    for (const RankKind& kind : kinds) {
      if (kind.planned.memory() != planned.memory() || kind.planned.traffic() != planned.traffic()) continue;
      alike += 1;
      if (alike == 1) found[kind.rank] += 1;
    }
    EXPECT_GE(alike, 1) << "rank " << rank;
  }
  int64_t all = 0;
  for (const RankKind& kind : kinds) all += kind.ranks;
  EXPECT_EQ(all, layout.ranks());
  if (found.size() == kinds.size()) {
    for (const RankKind& kind : kinds) EXPECT_EQ(found[kind.rank], kind.ranks) << "kind of rank " << kind.rank;
  }
}

TEST(Plan, EveryRankIsOfAKindThatNeedsTheSame) {
  using enum PipelineKind;
  for (const auto& [tp, pp, dp, layers] :
       {std::array{1, 1, 1, 5}, {4, 1, 2, 5}, {2, 3, 2, 7}, {1, 5, 2, 6}, {8, 2, 1, 5}, {3, 1, 2, 2}, {1, 4, 1, 9}}) {
    for (const bool tied : {false, true}) {
      for (const PipelineKind pipeline : {one_forward_one_backward, interleaved, zb_v}) {
        RunConfig config = with_layout(small_run(), tp, pp, pipeline);
        config.model.layers = layers;
        if (pipeline == interleaved && pp == 1) continue;
        if (pipeline == interleaved) config.parallel.chunks = 2;
        if (pipeline != one_forward_one_backward) config.model.layers += pp;
        config.train.sequence_length = 24;
        config.model.heads = config.model.kv_heads = tp == 3 ? 3 : 8;
        if (tp == 8) config.model.kv_heads = 2;
        config.model.tie_embeddings = tied;
        SCOPED_TRACE(::testing::Message() << to_string(pipeline) << " tp " << tp << " pp " << pp << " dp " << dp);
        expect_every_rank_is_of_a_kind(config, tp * pp * dp);
      }
    }
  }
}

void expect_counts(const RunConfig& config, int ranks) {
  ASSERT_EQ(find_faults(config, ranks, Use::dry_run), std::vector<std::string>{});
  const std::vector<RankKind> kinds = plan_kinds(config, make_layout(config.parallel, ranks), 1);
  EXPECT_GT(count_parameters(config).total, 0);
  for (const RankKind& kind : kinds) {
    for (const auto& [category, bytes] : kind.planned.memory()) EXPECT_GE(bytes, 0) << category;
    for (const auto& [name, cost] : kind.planned.traffic()) {
      EXPECT_GT(cost.calls, 0) << name;
      EXPECT_GE(cost.bytes, 0) << name;
    }
    for (const auto& [name, cost] : kind.planned.kernels()) {
      EXPECT_GT(cost.calls, 0) << name;
      EXPECT_GE(std::min({cost.bytes_read, cost.bytes_written, cost.operations}), 0) << name;
    }
  }
}

// On any machine, and nothing of the host's memory: what a GPU's libraries and bodies ask for is not what the CPU's do.
TEST(Plan, OfAGpuRunIsMadeWithoutOne) {
  RunConfig config = small_run();
  config.train.precision = Precision::fp32;
  const auto plan = [&](int ranks) {
    EXPECT_EQ(find_faults(config, ranks, Use::dry_run), std::vector<std::string>{});
    Ledger planned;
    plan_memory(config, make_layout(config.parallel, ranks), 0, 2, planned);
    return planned.memory();
  };
  const auto on_cpu = plan(1);
  config.device.kind = DeviceChoice::cuda;
  config.device.reserve = 5;
  auto on_gpu = plan(1);
  EXPECT_EQ(on_gpu.at("reserve"), 5 << 20);
  EXPECT_EQ(on_gpu.at("workspace"), int64_t{64} << 20);
  EXPECT_EQ(on_gpu.at("staging"), 0);
  EXPECT_FALSE(on_gpu.contains("NCCL"));
  for (const char* same : {"parameters", "gradients", "optimizer", "activations", "tables"}) {
    EXPECT_EQ(on_gpu.at(same), on_cpu.at(same)) << same;
  }
  EXPECT_NE(on_gpu.at("scratch"), on_cpu.at("scratch"));
  config.parallel.tp = 2;
  on_gpu = plan(2);
  EXPECT_EQ(on_gpu["communication"], 0);
  const auto of_nccl = [](NcclUse use, int size, const NcclBuffers& buffers) {
    return nccl_memory(use, size, true, buffers);
  };
  EXPECT_EQ(on_gpu.at("NCCL"), of_nccl(NcclUse::scalars, 2, {}) + of_nccl(NcclUse::sums, 2, {}));
  config.parallel.tp = 4;
  config.train.deterministic = Deterministic::repeat;  // without sums in the switch
  EXPECT_EQ(plan(4).at("NCCL"), of_nccl(NcclUse::scalars, 4, {.multicast = false}) +
                                    of_nccl(NcclUse::sums, 4, {.multicast = false}) +
                                    of_nccl(NcclUse::sums, 2, {.multicast = false}));  // of a KV head's two ranks
  config.parallel.tp = 2;
  config.train.deterministic = Deterministic::off;
  EXPECT_NE(find_faults(config, 2, Use::train), std::vector<std::string>{});
}

// A step of these would take years; the plan takes a moment and no memory.
TEST(Plan, CountsTheLargestThatIsAccepted) {
  RunConfig config = small_run();
  config.model = {.layers = 4096, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 24, .vocab = 37};
  expect_counts(config, 1);
  config = small_run();
  config.model.vocab = 2000000000;
  expect_counts(config, 1);
  expect_counts(with_layout(config, 4, 2, PipelineKind::gpipe), 16);
  config = small_run();
  config.model.hidden = 2000000000;
  config.model.head_dim = 4;
  config.train.sequence_length = 1;
  expect_counts(config, 1);
  config = small_run();
  config.train.global_batch = 1 << 20;
  expect_counts(config, 1);
  expect_counts(with_layout(config, 1, 5, PipelineKind::gpipe), 5);
  config = small_run();
  config.model = {.layers = 1, .hidden = 2, .heads = 1, .kv_heads = 1, .head_dim = 2, .ffn = 1, .vocab = 2};
  config.train.global_batch = 1;
  config.train.sequence_length = 100000000;
  expect_counts(config, 1);
  config = small_run();
  config.model.layers = 128;
  config.model.heads = config.model.kv_heads = 8;
  config.train.global_batch = 1 << 20;
  config = with_layout(config, 8, 64, PipelineKind::one_forward_one_backward);
  expect_counts(config, 16384);
  EXPECT_LE(plan_kinds(config, make_layout(config.parallel, 16384), 1).size(),
            68u);  // stages differ by what is in flight
}

// Packed documents: what each row attends to, summed over the global batch once in every layout.
TEST(Attended, CountsRowsOfTheirDocumentAlone) {
  RunConfig config = small_run();
  config.train.global_batch = 4;
  const int64_t length = config.train.sequence_length;
  // Samples of 8 rows cut before rows 3 and 5: 6 + 3 + 6; the last one not at all: 36. A cut at row 0 changes nothing.
  const SampleReader read = [length](int64_t first, int64_t count, HostBatch& batch) {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t row = 0; row < length; ++row) {
        const auto at = static_cast<size_t>(i * length + row);
        batch.ids[at] = static_cast<int32_t>(row);
        batch.targets[at] = 1;
        batch.document_starts[at] = row == 0 || ((first + i) % 4 != 3 && (row == 3 || row == 5));
      }
    }
  };
  for (const bool reset : {true, false}) {
    config.data.document_reset = reset;
    const double expected = reset ? 3 * (6 + 3 + 6) + 36 : 4 * 36;
    for (const auto& [tp, pp, dp] : {std::array{1, 1, 1}, {2, 2, 1}, {1, 1, 4}, {1, 2, 2}}) {
      for (const int64_t micro_batch : {1, 4 / dp}) {
        config.train.micro_batch = micro_batch;
        run_thread_ranks(tp * pp * dp, [&](HostCommunicator& world) {
          RankTrainer rank(with_layout(config, tp, pp, PipelineKind::one_forward_one_backward), world);
          for (const int64_t step : {1, 2}) EXPECT_EQ(rank.step(step, read).attended, expected);
        });
      }
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
