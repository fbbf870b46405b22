// A layer, Recompute, and stages against plain loops: loss, gradients, recomputation, two stages, decoding.
#include "model/transformer.h"

#include "model/module_cases.h"

namespace shiftron::testing {
namespace {

ModelConfig shifted_model(bool tied = false) {
  ModelConfig config = small_model({.query = 1, .key = 3, .value = 2}, 1);
  config.tie_embeddings = tied;
  return config;
}

ModuleCase layer_case(bool recompute_mlp) {
  return {.config = shifted_model(),
          .make = [=](Rank& rank) -> Module {
            auto layer = std::make_shared<TransformerLayer>(rank.set, rank.config, 3, recompute_mlp);
            rank.own(layer->attention().shifts());
            auto saved = std::make_shared<TransformerLayer::Saved>();
            const Tensor rope = rank.rope(6);
            return {[=](Run& run, const Tensor& x) { return sum_residual(run, layer->forward(run, x, rope, *saved)); },
                    [=](Run& run, const Tensor& d_y, const Tensor&) {
                      layer->backward(run, InOut(d_y), rope, *saved);
                      return d_y;
                    }};
          },
          .plain = [](const Weights& weights,
                      const Values& x) { return plain_layer(weights, "layers.3", shifted_model(), small_rows(), x); }};
}

// The layer of layer_case, recomputed as a whole.
ModuleCase recomputed_case() {
  ModuleCase c = layer_case(false);
  c.make = [](Rank& rank) -> Module {
    auto layer = std::make_shared<TransformerLayer>(rank.set, rank.config, 3, false);
    rank.own(layer->attention().shifts());
    auto saved = std::make_shared<Recompute<TransformerLayer>::Saved>();
    const Tensor rope = rank.rope(6);
    return {[=](Run& run, const Tensor& x) {
              const int64_t before = run.activations.used();
              const Tensor y = Recompute(*layer).forward(run, x, rope, *saved);
              EXPECT_LT(run.activations.used() - before, y.bytes() + kAlignment + red_zone()) << "more is kept than the output";
              return y;
            },
            [=](Run& run, const Tensor& d_y, const Tensor&) {
              const int64_t before = run.activations.used();
              Recompute(*layer).backward(run, InOut(d_y), rope, *saved);
              EXPECT_EQ(run.activations.used(), before);
              return d_y;
            }};
  };
  return c;
}

TEST(TransformerLayer, EqualsPlainLoops) {
  expect_plain(layer_case(false));
}

TEST(TransformerLayer, HasTheSameBitsWhereItIsMadeAgain) {
  for (const int tp : {1, 2}) {
    const Outcome kept = evaluate(layer_case(false), tp);
    for (const ModuleCase& c : {layer_case(true), recomputed_case()}) {
      const Outcome again = evaluate(c, tp);
      EXPECT_EQ(again.y, kept.y);
      EXPECT_EQ(again.d_x, kept.d_x);
      EXPECT_EQ(again.gradients, kept.gradients);
    }
  }
}

// ---- stages ---------------------------------------------------------------------------------------------------------
const std::vector<int> kIds = {3, 10, 0, 7, 7, 5, 2, 9, 4, 10, 1, 6};
const std::vector<int> kTargets = {10, 0, 7, -1, 5, 6, 9, 4, -1, 1, 6, 8};

struct StageOutcome {
  Values losses{};
  double sum = 0, counted = 0;
  int64_t kept = 0;  // bytes, of all ranks
  Weights weights{}, gradients{};
};

// Forward and backward of all stages, one after another.
StageOutcome evaluate_stages(const ModelConfig& config, const ParallelLayout& layout, RecomputeKind recompute) {
  StageOutcome outcome;
  std::mutex mutex;
  run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
    Rank rank(world, layout, config);
    const int at = rank.groups.at.pp;
    const bool first = at == 0, last = at == layout.pp - 1;
    TransformerStage stage(rank.set, config, {split_range(config.layers, layout.pp, at), first, last, first && last}, recompute);
    EXPECT_EQ(stage.first(), at == 0);
    EXPECT_EQ(stage.last(), at == layout.pp - 1);
    rank.allocate();
    stage.make_tables(rank.stream, 6);
    stage.prepare(rank.stream);
    const Rows rows = small_rows();
    Run run = rank.begin(rows);
    const auto allocate = [&](int64_t count, int64_t columns) {
      return rank.place(Values(static_cast<size_t>(count * columns)), {count, columns});
    };
    Tensor input, d_output;
    if (!stage.first()) rank.receive(input = allocate(run.local_rows(), config.hidden), false);
    const Tensor totals = allocate(kLossTotals, 1).view({kLossTotals}), losses = allocate(run.rows, 1).view({run.rows});
    TransformerStage::Saved saved;
    const Tensor output = stage.forward(run, {rank.place(kIds), rank.place(kTargets)}, input, saved, totals,
                                        stage.last() ? losses : Tensor());
    if (!stage.last()) {
      rank.send(output, true);
      rank.receive(d_output = allocate(run.local_rows(), config.hidden), true);
    }
    const int64_t kept = run.activations.used();
    rank.clear(rank.scratch);
    const Tensor d_input = stage.backward(run, d_output, saved);
    EXPECT_EQ(d_input.defined(), !stage.first());
    if (!stage.first()) rank.send(d_input, false);
    rank.sum_gradients();
    const std::lock_guard lock(mutex);
    rank.collect(&Parameter::weight, 1, outcome.weights);
    rank.collect(&Parameter::gradient, 1 / run.loss_scale, outcome.gradients);
    outcome.kept += kept;
    if (!stage.last()) return;
    outcome.losses = values_of(losses);
    outcome.sum = totals.data<double>()[0];
    outcome.counted = totals.data<double>()[1];
  });
  return outcome;
}

class TransformerStageTest : public ::testing::TestWithParam<bool> {};  // tied embeddings

TEST_P(TransformerStageTest, EqualsPlainLoops) {
  const ModelConfig config = shifted_model(GetParam());
  const StageOutcome one = evaluate_stages(config, {}, RecomputeKind::none);
  Weights weights = one.weights;
  EXPECT_EQ(weights.contains("head.weight"), !config.tie_embeddings);
  const auto losses = [&] { return plain_losses(plain_logits(weights, config, small_rows(), kIds), kTargets); };
  const auto loss = [&] { return dot(losses(), Values(kTargets.size(), 1)); };
  expect_near(one.losses, losses(), 1e-12, "losses");
  EXPECT_NEAR(one.sum, loss(), 1e-11);
  EXPECT_EQ(one.counted, 10);
  expect_near(one.gradients, differences(weights, loss), 1e-8, "gradient");
}

TEST_P(TransformerStageTest, IsTheSameInEveryLayout) {
  const ModelConfig config = shifted_model(GetParam());
  const StageOutcome one = evaluate_stages(config, {}, RecomputeKind::none);
  for (const ParallelLayout& layout :
       {ParallelLayout{.tp = 2}, ParallelLayout{.pp = 2}, ParallelLayout{.tp = 2, .pp = 2}}) {
    SCOPED_TRACE("tp " + std::to_string(layout.tp) + ", pp " + std::to_string(layout.pp));
    const StageOutcome split = evaluate_stages(config, layout, RecomputeKind::none);
    expect_near(split.losses, one.losses, 1e-12, "losses");
    expect_near(split.gradients, one.gradients, 1e-12, "gradient");
    EXPECT_NEAR(split.sum, one.sum, 1e-11);
    EXPECT_EQ(split.counted, one.counted);
    int64_t kept = split.kept;
    for (const RecomputeKind recompute : {RecomputeKind::selective, RecomputeKind::full}) {
      const StageOutcome again = evaluate_stages(config, layout, recompute);
      EXPECT_EQ(again.losses, split.losses) << to_string(recompute);
      EXPECT_EQ(again.gradients, split.gradients) << to_string(recompute);
      EXPECT_LT(again.kept, kept) << to_string(recompute);
      kept = again.kept;
    }
  }
}

TEST_P(TransformerStageTest, DecodesWhatForwardMakes) {
  const ModelConfig config = shifted_model(GetParam());
  const Weights weights = evaluate_stages(config, {}, RecomputeKind::none).weights;
  const auto count = static_cast<int>(kIds.size());
  const Values whole = plain_logits(weights, config, make_rows({{count}}), kIds);
  for (const int tp : {1, 2}) {
    run_thread_ranks(tp, [&](HostCommunicator& world) {
      Rank rank(world, {.tp = tp}, config);
      TransformerStage stage(rank.set, config, {.layers = {0, config.layers}}, RecomputeKind::none);
      rank.allocate();
      stage.make_tables(rank.stream, count);
    stage.prepare(rank.stream);
      Arena memory(rank.stream, "states", {{"states", 1 << 14}}, "cache");
      std::vector<AttentionCache> caches = stage.make_caches(memory, count);
      const Range vocabulary = stage.vocabulary();
      for (const auto& [begin, end] : {std::pair{0, 1}, {1, 6}, {6, 8}, {8, count}}) {
        auto run = rank.begin(following_rows(begin, end - begin), true);
        const Tensor ids = rank.place(std::vector<int>(kIds.begin() + begin, kIds.begin() + end));
        Values expected;
        for (int row = begin; row < end; ++row) {
          const auto first = whole.begin() + row * config.vocab;
          expected.insert(expected.end(), first + vocabulary.begin, first + vocabulary.end);
        }
        expect_near(values_of(stage.logits(run, stage.decode(run, ids, {}, caches))), expected, 1e-12,
                    "logits from row " + std::to_string(begin));
      }
    });
  }
}

TEST_P(TransformerStageTest, DeclaresAsManyParametersAsAreCounted) {
  for (const ShiftForm form : {ShiftForm::free, ShiftForm::gate}) {
    const bool gate = form == ShiftForm::gate;  // of one previous token
    ModelConfig config = small_model({.query = 1, .key = gate ? 1 : 3, .value = gate ? 1 : 2, .form = form}, 1);
    config.tie_embeddings = GetParam();
    run_thread_ranks(1, [&](HostCommunicator& world) {
      Rank rank(world, {}, config);
      const TransformerStage stage(rank.set, config, {.layers = {0, config.layers}}, RecomputeKind::none);
      double declared = 0;
      for (const auto& parameter : rank.set.parameters()) {
        declared += static_cast<double>(parameter->spec.shape.count());
      }
      EXPECT_EQ(parameter_count(config), declared) << to_string(form);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Embeddings, TransformerStageTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "tied" : "untied"; });

}  // namespace
}  // namespace shiftron::testing
