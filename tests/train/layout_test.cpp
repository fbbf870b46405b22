// Results do not depend on the parallel layout: every valid layout compared with one rank, in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include "config/validate.h"
#include "core/philox.h"
#include "train/training_harness.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kSteps = 20;

RunConfig base_config(int64_t kv_heads, bool tied) {
  RunConfig config;
  config.model = {.layers = 3,
                  .hidden = 32,
                  .heads = 8,
                  .kv_heads = kv_heads,
                  .head_dim = 4,
                  .ffn = 48,
                  .vocab = 61,
                  .tie_embeddings = tied,
                  .init_std = 0.1,
                  .shift = {}};
  config.train.steps = kSteps;
  config.train.global_batch = 24;
  config.train.sequence_length = 8;
  config.train.precision = Precision::fp64;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup = 4;
  return config;
}

// Text with structure that can be learned: each token depends on the one before; documents of random length. `masked`:
// of every fifth sample nothing is counted, so that whole microbatches count nothing.
SampleReader structured_samples(int64_t length, int64_t vocab, bool masked = true) {
  return [length, vocab, masked](int64_t first, int64_t count, HostBatch& batch) {
    for (int64_t i = 0; i < count; ++i) {
      const Philox random(7, "sample " + std::to_string((first + i) % 48));
      int64_t token = static_cast<int64_t>(random.uniform(1000) * static_cast<double>(vocab));
      for (int64_t t = 0; t <= length; ++t) {
        const int64_t at = i * length + t;
        const bool starts = random.uniform(static_cast<uint64_t>(t)) < 0.2;
        const bool counted = !starts && !(masked && (first + i) % 5 == 4);
        if (t > 0) batch.targets[at - 1] = counted ? static_cast<int32_t>(token) : -1;
        if (t == length) break;
        batch.ids[at] = static_cast<int32_t>(token);
        batch.document_starts[at] = starts ? 1 : 0;
        token = (token * 3 + (random.uniform(static_cast<uint64_t>(100 + t)) < 0.8 ? 1 : 7)) % vocab;
      }
    }
  };
}

struct Curve {
  TensorMap first_gradient, last_gradient, final;
  std::vector<double> loss, accuracy;
};

// Gradients of step 1 and of the last step before its update, as sums over all ranks.
Curve train_curve(const RunConfig& config, int ranks, const SampleReader& read) {
  Curve curve;
  std::mutex mutex;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    Engine& engine = rank.trainer->engine();
    const auto gradients = [&](int64_t step, TensorMap& into) {
      Ledger ledger;
      Buffer totals(DeviceKind::cpu, 8 * kLossTotals, ledger, "test");
      engine.accumulate_gradients(rank.trainer->microbatches(), rank.reader(step, read),
                                  totals.tensor(0, DType::float64, {kLossTotals}));
      collect(engine.parameters(), gradients_of, into, mutex);
      fill_zero(rank.stream, engine.parameters().gradients());
    };
    gradients(1, curve.first_gradient);
    for (int64_t step = 1; step <= config.train.steps; ++step) {
      if (step == config.train.steps) gradients(step, curve.last_gradient);
      const StepResult result = rank.step(step, read);
      const std::lock_guard lock(mutex);
      if (world.rank() != 0) continue;
      curve.loss.push_back(result.loss);
      curve.accuracy.push_back(result.accuracy);
    }
    collect(engine.parameters(), masters_of, curve.final, mutex);
  });
  return curve;
}

double largest_difference(const TensorMap& a, const TensorMap& b, std::string& where) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (const auto& [name, values] : b) {
    const auto found = a.find(name);
    if (found == a.end()) {
      ADD_FAILURE() << name << " is missing";
      continue;
    }
    const double difference = relative_difference(found->second, values);
    if (!(difference <= largest)) {
      largest = difference;
      where = name;
    }
  }
  return largest;
}

void expect_equal(const Curve& curve, const Curve& reference, double tolerance, const std::string& layout) {
  std::string where;
  EXPECT_EQ(curve.accuracy, reference.accuracy) << layout;  // counts are whole numbers
  EXPECT_GT(*std::ranges::max_element(reference.accuracy), 0);
  EXPECT_LE(largest_difference(curve.first_gradient, reference.first_gradient, where), tolerance)
      << "gradient of step 1, " << where << ", " << layout;
  EXPECT_LE(largest_difference(curve.last_gradient, reference.last_gradient, where), tolerance)
      << "gradient of the last step, " << where << ", " << layout;
  EXPECT_LE(largest_difference(curve.final, reference.final, where), tolerance)
      << "weights, " << where << ", " << layout;
}

struct LayoutCase {
  int tp, pp, dp;
  std::string text() const {
    return "tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " + std::to_string(dp);
  }
};

std::vector<LayoutCase> all_layouts() {
  std::vector<LayoutCase> layouts;
  for (int tp = 1; tp <= 8; ++tp) {
    for (int pp = 1; tp * pp <= 8; ++pp) {
      for (int dp = 1; tp * pp * dp <= 8; ++dp) layouts.push_back({tp, pp, dp});
    }
  }
  return layouts;
}

RunConfig with_layout(RunConfig config, const LayoutCase& layout) {
  config.parallel.tp = layout.tp;
  config.parallel.pp = layout.pp;
  if (layout.pp == 2) config.parallel.stage_layers = {1, 2};  // uneven, and not what the default would choose
  if (layout.dp % 2 == 0) config.parallel.pipeline = PipelineKind::gpipe;
  if (layout.tp == 2) config.parallel.recompute = RecomputeKind::selective;
  if (layout.tp == 4 || layout.pp == 3) config.parallel.recompute = RecomputeKind::full;
  config.parallel.zero = (layout.tp + layout.pp + layout.dp) % 2;
  config.parallel.bucket_elements = layout.tp % 2 == 1 ? 500 : 0;
  return config;
}

class LayoutTest : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {};

TEST_P(LayoutTest, EveryValidLayoutEqualsOneRankAndTheOthersAreRefused) {
  const auto [kv_heads, tied] = GetParam();
  const RunConfig base = base_config(kv_heads, tied);
  const SampleReader read = structured_samples(base.train.sequence_length, base.model.vocab);
  const Curve reference = train_curve(base, 1, read);
  EXPECT_LT(reference.loss.back(), 0.8 * reference.loss.front()) << "the learning rate changes too little to compare";
  int valid = 0;
  for (const LayoutCase& layout : all_layouts()) {
    const RunConfig config = with_layout(base, layout);
    const int ranks = layout.tp * layout.pp * layout.dp;
    const auto faults = find_faults(config, ranks, Use::dry_run);
    const bool heads_fit = 8 % layout.tp == 0 && (layout.tp % kv_heads == 0 || kv_heads % layout.tp == 0) &&
                           48 % layout.tp == 0 && 8 % layout.tp == 0;
    const bool possible = heads_fit && layout.pp <= 3 && 24 % layout.dp == 0;
    EXPECT_EQ(faults.empty(), possible) << layout.text() << (faults.empty() ? "" : ": " + faults.front());
    if (!faults.empty()) continue;
    ++valid;
    expect_equal(train_curve(config, ranks, read), reference, 1e-10, layout.text());
  }
  EXPECT_GE(valid, 20);
}

INSTANTIATE_TEST_SUITE_P(KvHeads, LayoutTest,
                         ::testing::Combine(::testing::Values(int64_t{1}, int64_t{2}, int64_t{4}), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string("kv").append(std::to_string(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "_tied" : "_untied");
                         });

// Of everything that a layout may be, with sizes that divide nothing: 7 layers, 61 tokens, dp 3 and 5, two KV heads.
struct MatrixCase {
  int tp = 1, pp = 1, dp = 1;
  PipelineKind pipeline = PipelineKind::one_forward_one_backward;
  int chunks = 1;
  int zero = 0;
  RecomputeKind recompute = RecomputeKind::none;
  bool tied = false;

  int ranks() const { return tp * pp * dp; }
  std::string text() const {
    std::string text = LayoutCase{tp, pp, dp}.text() + " " + to_string(pipeline);
    if (chunks > 1) text += " " + std::to_string(chunks);
    return text + " zero " + std::to_string(zero) + " recompute " + to_string(recompute) + (tied ? " tied" : "");
  }
  RunConfig config() const {
    RunConfig made = base_config(2, tied);
    made.model.layers = 7;
    made.train.steps = 3;
    made.train.global_batch = 30;
    made.parallel = {.tp = tp,
                     .pp = pp,
                     .chunks = chunks,
                     .zero = zero,
                     .bucket_elements = zero * 1500,
                     .pipeline = pipeline,
                     .recompute = recompute};
    return made;
  }
};

std::vector<MatrixCase> all_of_the_matrix() {
  const std::vector<std::pair<PipelineKind, int>> schedules = {{PipelineKind::one_forward_one_backward, 1},
                                                               {PipelineKind::gpipe, 1},
                                                               {PipelineKind::interleaved, 2},
                                                               {PipelineKind::interleaved, 3},
                                                               {PipelineKind::zb_h1, 1},
                                                               {PipelineKind::zb_v, 2}};
  std::vector<MatrixCase> cases;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 3, 4}) {
      for (const int dp : {1, 2, 3, 5, 6, 10, 15}) {
        for (const auto& [pipeline, chunks] : schedules) {
          for (const int zero : {0, 1}) {
            for (const auto recompute : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
              for (const bool tied : {false, true}) {
                const MatrixCase one{tp, pp, dp, pipeline, chunks, zero, recompute, tied};
                if (one.ranks() <= 16 && pp * chunks <= 7) cases.push_back(one);
              }
            }
          }
        }
      }
    }
  }
  return cases;
}

class LayoutMatrix : public ::testing::TestWithParam<bool> {};

TEST_P(LayoutMatrix, EqualsOneRank) {
  const MatrixCase alone{.tied = GetParam()};
  const SampleReader read = structured_samples(alone.config().train.sequence_length, alone.config().model.vocab);
  const Curve reference = train_curve(alone.config(), 1, read);
  // A share of them, spread evenly: neighbours in the list differ in one thing. launch/layouts asks for all.
  const std::vector<MatrixCase> all = all_of_the_matrix();
#ifdef __SANITIZE_ADDRESS__  // a sample of the sample, 20 times slower
  constexpr size_t kShare = 125;
#else
  constexpr size_t kShare = 25;
#endif
  const size_t stride = std::getenv("SHIFTRON_EVERY_LAYOUT") != nullptr ? 1 : kShare;
  std::set<std::string> seen;
  int compared = 0;
  for (size_t i = GetParam() ? 1 : 0; i < all.size(); i += stride) {
    const MatrixCase& one = all[i];
    if (one.tied != GetParam()) continue;
    const auto faults = find_faults(one.config(), one.ranks(), Use::dry_run);
    ASSERT_TRUE(faults.empty()) << one.text() << ": " << faults.front();
    try {
      expect_equal(train_curve(one.config(), one.ranks(), read), reference, 1e-10, one.text());
    } catch (const std::exception& error) {
      ADD_FAILURE() << one.text() << ": " << error.what();
    }
    seen.insert(to_string(one.pipeline) + std::to_string(one.chunks) + (one.zero > 0 ? " zero" : ""));
    ++compared;
  }
  EXPECT_GE(compared, static_cast<int>(1300 / stride));
  EXPECT_TRUE(seen.size() == 12 || stride > 25) << "a schedule is left out";
}

INSTANTIATE_TEST_SUITE_P(Tables, LayoutMatrix, ::testing::Bool(),
                         [](const auto& tied) { return tied.param ? "tied" : "untied"; });

TEST(LayoutMatrix, SixtyFourRanksEqualOne) {
  const auto config_of = [](const MatrixCase& one) {
    RunConfig made = one.config();
    made.model.layers = 8;
    made.train.global_batch = 16;
    made.train.steps = 5;
    return made;
  };
  const MatrixCase most{.tp = 4, .pp = 4, .dp = 4, .pipeline = PipelineKind::interleaved, .chunks = 2, .zero = 1};
  const RunConfig config = config_of(most);
  const SampleReader read = structured_samples(config.train.sequence_length, config.model.vocab);
  expect_equal(train_curve(config, most.ranks(), read), train_curve(config_of({}), 1, read), 1e-10, most.text());
}

// Sums over all ranks, too, are made in an order that the numbering of ranks does not change.
TEST(RankOrder, ChangesNoBit) {
  for (const LayoutCase& layout : {LayoutCase{2, 2, 2}, {1, 3, 2}, {2, 1, 4}}) {
    for (const Precision precision : {Precision::fp32, Precision::fp64}) {
      RunConfig config = with_layout(base_config(2, true), layout);
      config.train.precision = precision;
      config.optimizer.clip = 0.05;          // below every norm, which is a sum over all ranks
      config.parallel.bucket_elements = 64;  // of which all data-parallel ranks hold parts of every layer
      config.train.steps = 6;
      config.parallel.zero = layout.tp % 2;
      const int ranks = layout.tp * layout.pp * layout.dp;
      const SampleReader read = structured_samples(config.train.sequence_length, config.model.vocab);
      const Curve usual = train_curve(config, ranks, read);
      for (const RankOrder& order : {RankOrder{Axis::tp, Axis::pp, Axis::cp, Axis::dp},
                                     {Axis::dp, Axis::pp, Axis::cp, Axis::tp},
                                     {Axis::pp, Axis::dp, Axis::tp, Axis::cp}}) {
        config.parallel.rank_order = order;
        const Curve other = train_curve(config, ranks, read);
        EXPECT_EQ(other.loss, usual.loss) << layout.text() << ", " << text_of(order);
        EXPECT_EQ(other.first_gradient, usual.first_gradient) << layout.text() << ", " << text_of(order);
        EXPECT_EQ(other.final, usual.final) << layout.text() << ", " << text_of(order);
      }
    }
  }
}

// Reordering samples changes only the order of sums over samples: what that does on one rank bounds what a layout may
// do. A layout also splits sums inside a sample, which no order of samples moves; so there must be enough samples (96,
// not the 24 of the float64 test) for their sum to be the larger part of the rounding.
TEST(LayoutFloat32, DifferencesStayWithinFourTimesThoseOfSampleOrders) {
  RunConfig base = base_config(2, false);
  base.train.precision = Precision::fp32;
  base.train.steps = 8;
  base.train.global_batch = 96;
  const SampleReader read = structured_samples(base.train.sequence_length, base.model.vocab);
  const int64_t size = base.train.global_batch;
  std::vector<Curve> orders;
  for (int64_t order = 0; order < 8; ++order) {
    RunConfig config = base;
    config.train.micro_batch = int64_t{1} << order % 4;
    // 5 and 96 share no factor: a different order for each `order`, the same samples in each step.
    orders.push_back(train_curve(config, 1, [&](int64_t first, int64_t count, HostBatch& batch) {
      HostBatch one = batch;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t sample = first + i;
        read(order == 0 ? sample : sample / size * size + (sample % size * 5 + order) % size, 1, one);
        const auto put = [&](const auto& from, auto& to) {
          std::copy_n(from.begin(), base.train.sequence_length, to.begin() + i * base.train.sequence_length);
        };
        put(one.ids, batch.ids);
        put(one.targets, batch.targets);
        put(one.document_starts, batch.document_starts);
      }
    }));
  }
  const Curve& reference = orders.front();
  double gradient_spread = 0, weight_spread = 0;
  std::string where;
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      gradient_spread =
          std::max(gradient_spread, largest_difference(orders[i].first_gradient, orders[j].first_gradient, where));
      weight_spread = std::max(weight_spread, largest_difference(orders[i].final, orders[j].final, where));
    }
  }
  for (const LayoutCase& layout : {LayoutCase{2, 1, 1}, {4, 1, 2}, {2, 2, 2}, {1, 3, 2}, {8, 1, 1}, {1, 1, 8}}) {
    const RunConfig config = with_layout(base, layout);
    const Curve curve = train_curve(config, layout.tp * layout.pp * layout.dp, read);
    EXPECT_LE(largest_difference(curve.first_gradient, reference.first_gradient, where), 4 * gradient_spread)
        << layout.text() << ", " << where;
    EXPECT_LE(largest_difference(curve.final, reference.final, where), 4 * weight_spread)
        << layout.text() << ", " << where;
  }
}

// What is recomputed has the same bits, and takes less memory.
// From float64's gradient, in the Frobenius norm, of a tensor in layer l of L: |difference| ≤ k · C^(L + 1 − l) · eps ·
// |gradient|, the form of Megatron-LM's bound (test_optimizer_grads_match.py, after arXiv 2506.09280) with its C. Its
// k, 4, is for bfloat16, whose sums are float32's and round nothing; here sums round as their terms do, and gradients
// of taps are sums of terms that cancel. One rank has to keep the same bound. The embedding is layer 0, what comes
// after the layers L + 1.
TEST(LayoutFloat32, GradientsStayWithinTheBoundOfTheirDepth) {
  constexpr double kFactor = 16, kGrowth = 1.03, kEpsilon = 1.1920928955078125e-7;
  using enum PipelineKind;
  const auto gradient = [](const MatrixCase& one, Precision precision) {
    RunConfig config = one.config();
    config.train.precision = precision;
    config.train.steps = 1;
    const SampleReader read = structured_samples(config.train.sequence_length, config.model.vocab, false);
    return train_curve(config, one.ranks(), read).first_gradient;
  };
  const TensorMap exact = gradient({}, Precision::fp64);
  const double layers = static_cast<double>(MatrixCase{}.config().model.layers);
  double nearest = 0;
  for (const MatrixCase& one : {MatrixCase{},
                                {4, 1, 2, one_forward_one_backward, 1, 1},
                                {2, 3, 2, interleaved, 2, 1},
                                {1, 2, 3, interleaved, 3, 0},
                                {2, 2, 2, zb_v, 2, 1, RecomputeKind::full},
                                {1, 4, 2, zb_h1},
                                {8, 1, 1},
                                {1, 1, 15, gpipe, 1, 1}}) {
    const TensorMap found = gradient(one, Precision::fp32);
    ASSERT_EQ(found.size(), exact.size());
    for (const auto& [name, values] : exact) {
      double difference = 0, size = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(found.at(name)[i] - values[i], 2);
        size += std::pow(values[i], 2);
      }
      const double layer = name.starts_with("layers.")     ? 1 + std::stod(name.substr(7))
                           : name.starts_with("embedding") ? 0
                                                           : layers + 1;
      const double of_bound =
          std::sqrt(difference / size) / (kFactor * std::pow(kGrowth, layers + 1 - layer) * kEpsilon);
      EXPECT_LE(of_bound, 1) << name << ", " << one.text();
      nearest = std::max(nearest, of_bound);
    }
  }
  EXPECT_GT(nearest, 0.1) << "the bound says nothing";
}

TEST(Recompute, ChangesNoBit) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    RunConfig config = base_config(2, false);
    config.train.precision = precision;
    config.train.micro_batch = 4;
    const SampleReader read = structured_samples(config.train.sequence_length, config.model.vocab);
    const Curve kept = train_curve(config, 1, read);
    const auto activations = [&] {
      Ledger ledger;
      return plan_memory(config, make_layout(config.parallel, 1), 0, 1, ledger).at("activations");
    };
    int64_t bytes = activations();
    for (const RecomputeKind kind : {RecomputeKind::selective, RecomputeKind::full}) {
      config.parallel.recompute = kind;
      const Curve again = train_curve(config, 1, read);
      EXPECT_EQ(again.loss, kept.loss) << to_string(kind);
      EXPECT_EQ(again.first_gradient, kept.first_gradient) << to_string(kind);
      EXPECT_EQ(again.final, kept.final) << to_string(kind);
      EXPECT_LT(activations(), bytes) << to_string(kind);
      bytes = activations();
    }
  }
}

TEST(Recompute, OfEachStageChangesNoBit) {
  using enum RecomputeKind;
  RunConfig config = base_config(2, false);
  config.train.precision = Precision::bf16;
  config.train.steps = 6;
  config.parallel.pp = 3;
  const SampleReader read = structured_samples(config.train.sequence_length, config.model.vocab);
  const Curve kept = train_curve(config, 3, read);
  for (const StageRecompute& recompute :
       {StageRecompute({full, selective, none}), StageRecompute({none, full, full})}) {
    config.parallel.recompute = recompute;
    const Curve again = train_curve(config, 3, read);
    EXPECT_EQ(again.loss, kept.loss);
    EXPECT_EQ(again.first_gradient, kept.first_gradient);
    EXPECT_EQ(again.final, kept.final);
  }
}

TEST(Layout, InitialWeightsAreTheSameBits) {
  const RunConfig base = base_config(2, true);
  TensorMap reference;
  std::mutex mutex;
  run_thread_ranks(1, [&](HostCommunicator& world) {
    RankTrainer rank(base, world);
    collect(rank.trainer->engine().parameters(), masters_of, reference, mutex);
  });
  for (const LayoutCase& layout : {LayoutCase{4, 1, 1}, {2, 2, 1}, {1, 3, 2}, {8, 1, 1}}) {
    TensorMap tensors;
    run_thread_ranks(layout.tp * layout.pp * layout.dp, [&](HostCommunicator& world) {
      RankTrainer rank(with_layout(base, layout), world);
      collect(rank.trainer->engine().parameters(), masters_of, tensors, mutex);
    });
    EXPECT_EQ(tensors, reference) << layout.text();
  }
}

TEST(Layout, LedgerOfARealRunEqualsThePlanAndStaysConstant) {
  const RunConfig base = base_config(2, false);
  const SampleReader read = structured_samples(base.train.sequence_length, base.model.vocab);
  for (const LayoutCase& layout : {LayoutCase{1, 1, 1}, {4, 1, 2}, {2, 3, 1}}) {
    const RunConfig config = with_layout(base, layout);
    run_thread_ranks(layout.tp * layout.pp * layout.dp, [&](HostCommunicator& world) {
      Ledger planned;
      plan_memory(config, make_layout(config.parallel, world.size()), world.rank(), 1, planned);
      RankTrainer rank(config, world);
      for (int64_t step = 1; step <= 3; ++step) {
        rank.ledger.clear_work();
        rank.step(step, read);
        EXPECT_EQ(rank.ledger.memory(), planned.memory()) << layout.text() << ", step " << step;
        EXPECT_EQ(rank.ledger.kernels(), planned.kernels()) << layout.text() << ", step " << step;
        EXPECT_EQ(rank.ledger.traffic(), planned.traffic()) << layout.text() << ", step " << step;
      }
      rank.step(4, read);  // as in a run, which clears nothing
      EXPECT_EQ(rank.ledger.kernels(), planned.kernels()) << layout.text();
    });
  }
}

}  // namespace
}  // namespace shiftron::testing
