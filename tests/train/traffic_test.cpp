// What plan_memory() counts, compared with the formulas of docs/parallelism.md, to the byte.
#include <gtest/gtest.h>

#include <numeric>

#include "config/validate.h"
#include "red_zone.h"
#include "train/parallelism_formulas.h"

namespace shiftron::testing {
namespace {

int64_t loss_blocks(const Case& c) {
  Stream stream{.device = DeviceKind::meta};
  if (c.config.device.kind == DeviceChoice::cuda) stream.planned = DeviceKind::cuda;
  const int64_t vocab = (c.config.model.vocab + c.layout.tp - 1) / c.layout.tp;
  return loss_tiles(stream, c.R(), vocab, number_types(c.config.train.precision).activation).blocks;
}

struct Axes {
  PipelineKind pipeline;
  int tp, pp, chunks, dp;
};

RunConfig small_run(const Axes& shape) {
  RunConfig config;
  config.model = {.hidden = 24,
                  .heads = 8,
                  .kv_heads = 2,
                  .head_dim = 4,
                  .ffn = 40,
                  .vocab = 37,
                  .shift = {.query = 1, .key = 3, .value = 2}};
  config.train.steps = 2;
  config.train.global_batch = 24;
  config.train.micro_batch = 2;
  config.train.sequence_length = 8;
  config.optimizer.learning_rate = 1e-2;
  config.parallel.tp = shape.tp;
  config.parallel.pp = shape.pp;
  config.parallel.chunks = shape.chunks;
  config.parallel.pipeline = shape.pipeline;
  for (int piece = 0; piece < shape.pp * shape.chunks; ++piece) config.parallel.stage_layers.push_back(1 + piece % 2);
  config.model.layers =
      std::accumulate(config.parallel.stage_layers.begin(), config.parallel.stage_layers.end(), int64_t{0});
  return config;
}

// Against the plan of every rank.
void expect_formulas(const RunConfig& config, int dp) {
  const ParallelLayout layout{.tp = config.parallel.tp, .dp = dp, .pp = config.parallel.pp};
  ASSERT_EQ(find_faults(config, layout.ranks(), Use::dry_run), std::vector<std::string>{});
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Case c{config, layout, rank};
    Ledger planned;
    plan_memory(config, layout, rank, 1, planned);
    Bytes counted, kept;
    for (const auto& [name, cost] : planned.traffic()) counted[name] = cost.bytes;
    for (const auto& [name, bytes] : state(c)) kept[name] = planned.memory().at(name);
    EXPECT_EQ(counted, traffic(c, loss_blocks(c))) << "rank " << rank;
    EXPECT_EQ(kept, state(c)) << "rank " << rank;
  }
}

TEST(Traffic, IsWhatTheFormulasSay) {
  const std::vector<Axes> shapes = {{one_forward_one_backward, 1, 1, 1, 1},
                                    {one_forward_one_backward, 1, 1, 1, 3},
                                    {one_forward_one_backward, 2, 1, 1, 1},
                                    {one_forward_one_backward, 8, 1, 1, 2},
                                    {one_forward_one_backward, 4, 2, 1, 2},
                                    {one_forward_one_backward, 1, 3, 1, 2},
                                    {one_forward_one_backward, 2, 4, 1, 1},
                                    {gpipe, 2, 2, 1, 3},
                                    {gpipe, 4, 1, 1, 4},
                                    {interleaved, 1, 2, 2, 2},
                                    {interleaved, 4, 2, 3, 1},
                                    {interleaved, 2, 1, 2, 2},
                                    {interleaved, 2, 3, 2, 2},
                                    {zb_h1, 2, 2, 1, 2},
                                    {zb_h1, 4, 3, 1, 1},
                                    {zb_v, 1, 1, 2, 2},
                                    {zb_v, 2, 2, 2, 2},
                                    {zb_v, 4, 3, 2, 1}};
  int number = 0;
  for (const Axes& shape : shapes) {
    for (const bool zero : {false, true}) {
      for (const bool tied : {false, true}) {
        RunConfig config = small_run(shape);
        config.parallel.zero = zero;
        config.model.tie_embeddings = tied;
        config.train.precision = std::array{Precision::fp32, Precision::bf16, Precision::fp64}[number % 3];
        config.parallel.recompute =
            std::array{RecomputeKind::none, RecomputeKind::full, RecomputeKind::selective}[number / 2 % 3];
        config.parallel.bucket_elements = std::array{0, 1, 3000, 100}[number / 3 % 4];
        if (number % 5 == 0 && config.train.precision != Precision::fp64) config.device.kind = DeviceChoice::cuda;
        if (number % 4 == 3) config.model.shift = {.query = 0, .key = 0, .value = 0};
        if (number % 7 == 6) config.model.vocab = 30011;  // several blocks of the head's logits
        if (number % 7 == 6) config.train.sequence_length = 1100;
        SCOPED_TRACE(::testing::Message() << "case " << number << ": " << to_string(shape.pipeline) << " tp "
                                          << shape.tp << " pp " << shape.pp << " chunks " << shape.chunks << " dp "
                                          << shape.dp << " zero " << zero << " tied " << tied);
        expect_formulas(config, shape.dp);
        ++number;
      }
    }
  }
}

// Copies of which several groups of more than two make the sum.
TEST(Traffic, OfCopiesOnAGpuIsWhatTheFormulasSay) {
  for (const int tp : {2, 4, 8}) {
    for (const bool zero : {false, true}) {
      RunConfig config = small_run({one_forward_one_backward, tp, 1, 1, 3});
      config.parallel.zero = zero;
      config.train.precision = Precision::bf16;
      config.device.kind = DeviceChoice::cuda;
      SCOPED_TRACE(::testing::Message() << "tp " << tp << " zero " << zero);
      expect_formulas(config, 3);
      Ledger planned;
      plan_memory(config, {.tp = tp, .dp = 3}, 0, 1, planned);
      EXPECT_EQ(planned.traffic().contains("dp broadcast"), tp > 2 && !zero);
    }
  }
}

// Sums over the other holders go part by part: all dp ranks together hand over what one does without zero 1.
TEST(Traffic, OfCopiesIsDividedByZero) {
  RunConfig config = small_run({one_forward_one_backward, 4, 2, 1, 3});
  config.model.tie_embeddings = true;
  const ParallelLayout layout{.tp = 4, .dp = 3, .pp = 2};
  const auto count = [&](int rank) {
    Ledger planned;
    plan_memory(config, layout, rank, 1, planned);
    Bytes bytes;
    for (const char* name : {"tp all_reduce", "kv_replica all_reduce", "tied all_reduce"}) {
      if (planned.traffic().contains(name)) bytes[name] = planned.traffic().at(name).bytes;
    }
    return bytes;
  };
  const Bytes whole = count(0);
  EXPECT_EQ(whole.size(), 3u);
  config.parallel.zero = 1;
  Bytes together;
  for (int dp = 0; dp < layout.dp; ++dp) {
    for (const auto& [name, bytes] : count(layout.rank({.dp = dp}))) together[name] += bytes;
  }
  EXPECT_EQ(together, whole);
}

// Microbatches in flight whose memory a stage has, of all its chunks.
int64_t in_flight(PipelineKind pipeline, int chunks, int p, int stage, int m) {
  return static_cast<int64_t>(stage_memory({pipeline, chunks}, p, stage, m).arenas.size());
}

TEST(Activations, InFlightAreAsManyAsTheTableSays) {
  constexpr int kMany = 64;
  for (const int p : {2, 3, 4, 8}) {
    for (int stage = 0; stage < p; ++stage) {
      EXPECT_EQ(in_flight(one_forward_one_backward, 1, p, stage, kMany), p - stage);
      EXPECT_EQ(in_flight(gpipe, 1, p, stage, kMany), kMany);
      EXPECT_EQ(in_flight(zb_h1, 1, p, stage, kMany), p);
      EXPECT_EQ(in_flight(zb_v, 2, p, stage, kMany), 2 * p);
      EXPECT_EQ(in_flight(interleaved, 2, p, stage, kMany), 2 * (p - stage - 1) + p + 1);
    }
  }
}

// A layer more in every piece of the model adds what it keeps as often as microbatches are in flight.
TEST(Activations, OfALayerAreWhatTheFormulasSay) {
  if (red_zone() > 0) GTEST_SKIP() << "red zones lie between tensors in this build";
  for (const Axes& shape :
       {Axes{one_forward_one_backward, 1, 1, 1, 1}, Axes{one_forward_one_backward, 2, 4, 1, 1}, Axes{gpipe, 4, 2, 1, 1},
        Axes{interleaved, 2, 3, 2, 1}, Axes{zb_h1, 2, 3, 1, 1}, Axes{zb_v, 4, 2, 2, 1}}) {
    for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        RunConfig config = small_run(shape);
        config.model = {.hidden = 512, .heads = 8, .kv_heads = 2, .head_dim = 64, .ffn = 1024, .vocab = 37};
        config.train.sequence_length = 256;
        config.train.precision = precision;
        config.parallel.recompute = recompute;
        const ParallelLayout layout{.tp = shape.tp, .dp = shape.dp, .pp = shape.pp};
        const auto activations = [&](int64_t layers, int rank) {
          config.parallel.stage_layers.assign(static_cast<size_t>(shape.pp * shape.chunks), layers);
          config.model.layers = layers * shape.pp * shape.chunks;
          Ledger planned;
          plan_memory(config, layout, rank, 1, planned);
          return planned.memory().at("activations");
        };
        for (int stage = 0; stage < shape.pp; ++stage) {
          const int rank = layout.rank({.pp = stage});
          const Case c{config, layout, rank};
          const bool put_off = shape.pipeline == zb_h1 || shape.pipeline == zb_v;
          const int64_t each = kept_by_layer(c) + (put_off ? put_off_by_layer(c) : 0);
          const int64_t held = in_flight(shape.pipeline, shape.chunks, shape.pp, stage, static_cast<int>(c.m()));
          EXPECT_EQ(activations(3, rank) - activations(2, rank), held * each)
              << to_string(shape.pipeline) << " tp " << shape.tp << " stage " << stage << " " << to_string(recompute)
              << " " << to_string(precision);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
