// On a late device, in every order that its streams and events allow, training gives the same bits as when operations
// run at once: in layouts, precisions, with recomputation, with delayed weight gradients, after a resume.
#include "late/late_training.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "core/log.h"
#include "scratch.h"

namespace shiftron::testing {
namespace {

using enum PipelineKind;

const std::vector<LateCase> kCases = {
    {.name = "alone"},
    {.name = "tp 2", .tp = 2},
    {.name = "pp 2", .pp = 2},
    {.name = "pp 3", .pp = 3},
    {.name = "pp 3 gpipe", .pp = 3, .pipeline = gpipe},
    {.name = "dp 2", .dp = 2, .bucket_elements = 200},
    {.name = "tp 2 pp 2 dp 2", .tp = 2, .pp = 2, .dp = 2},
    {.name = "selective", .tp = 2, .recompute = RecomputeKind::selective},
    {.name = "full", .pp = 2, .recompute = RecomputeKind::full},
    {.name = "zero dp 2", .dp = 2, .zero = 1, .bucket_elements = 200},
    {.name = "zero tp 2 dp 2", .tp = 2, .dp = 2, .zero = 1, .bucket_elements = 100},
    {.name = "zero pp 2 dp 2", .pp = 2, .dp = 2, .recompute = RecomputeKind::full, .zero = 1},
};

class Late : public ::testing::TestWithParam<Order> {
 protected:
  // The draws of an order that has any.
  static std::vector<uint64_t> seeds() {
    const bool draws = GetParam() == Order::random || GetParam() == Order::uneven;
    return draws ? std::vector<uint64_t>{1, 2, 3} : std::vector<uint64_t>{1};
  }
  static void expect_same_bits(const LateCase& c, const RunConfig& config) {
    const LateRun at_once = train_late(c, config, nullptr);
    ASSERT_EQ(at_once.loss.size(), static_cast<size_t>(config.train.steps));
    for (const uint64_t seed : seeds()) {
      SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
      Machine machine({.order = GetParam(), .seed = seed});
      EXPECT_TRUE(train_late(c, config, &machine) == at_once);
    }
  }
};

TEST_P(Late, TrainingHasTheSameBits) {
  for (const LateCase& c : kCases) expect_same_bits(c, c.config());
}

TEST_P(Late, EveryPrecisionHasTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const LateCase& c : {kCases[0], kCases[6], kCases[10]}) expect_same_bits(c, c.config(precision));
  }
}

// One start of a run: resumes after `from` (0: starts), trains to step `to`, saves.
TensorMap run_and_save(const LateCase& c, const std::string& directory, int64_t from, int64_t to, Machine* machine) {
  TensorMap weights;
  std::mutex mutex;
  run_thread_ranks(c.ranks(), [&](HostCommunicator& world) {
    const auto queue = machine != nullptr ? machine->make_queue("compute") : nullptr;
    RunConfig config = c.config(Precision::bf16);
    RankTrainer rank(config, world, {.queue = queue.get()});
    ParameterSet& set = rank.trainer->engine().parameters();
    Log log;
    if (from > 0) {
      const auto content =
          load_checkpoint(directory, from, set, world, log, {.gather = [&] { rank.trainer->engine().gather_all(); }});
      CHECK(content, "there is no step ", from);
      rank.trainer->restore(saved_state(content->state_json, directory).trainer);
    }
    const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
    for (int64_t step = from + 1; step <= to; ++step) {
      rank.trainer->step(step, rank.reader(step, read), false);
      if (step > from + 1) (void)rank.trainer->result(step - 1);
    }
    (void)rank.trainer->result(to);
    SavedState state;
    state.trainer = rank.trainer->state();
    const CheckpointContent content{.step = to, .configuration = "", .state_json = to_json(state),
                                    .tokenizer = {{"tokenizer.model", "model"}}, .data_fingerprint = "", .code_version = ""};
    CHECK(save_checkpoint(directory, content, set, world, {.keep = 9}, log).saved, "step ", to, " was not saved");
    collect(set, masters_of, weights, mutex);
  });
  return weights;
}

TEST_P(Late, ResumeHasTheSameBits) {
  const LateCase whole_copies{.name = "resume", .tp = 2, .pp = 2};
  for (const LateCase& c : {whole_copies, kCases[10]}) {
    const Scratch whole;
    const TensorMap at_once = run_and_save(c, whole.path(), 0, 5, nullptr);
    for (const uint64_t seed : seeds()) {
      const Scratch parts;
      Machine machine({.order = GetParam(), .seed = seed});
      run_and_save(c, parts.path(), 0, 3, &machine);
      EXPECT_TRUE(run_and_save(c, parts.path(), 3, 5, &machine) == at_once) << c.name << ", seed " << seed;
    }
  }
}

// What is saved is read after everything that was enqueued; the counters only when they are known.
TEST_P(Late, WeightsAreReadBehindTheStep) {
  const auto weights_behind = [](Machine* machine) {
    const auto queue = machine != nullptr ? machine->make_queue("compute") : nullptr;
    const auto world = make_single_world();
    RankTrainer rank(late_config(), *world, {.queue = queue.get()});
    const SampleReader read = random_samples(rank.config.train.sequence_length, rank.config.model.vocab);
    rank.trainer->step(1, rank.reader(1, read), false);
    EXPECT_THROW((void)rank.trainer->state(), Error);
    TensorMap weights;
    std::mutex mutex;
    collect(rank.trainer->engine().parameters(), masters_of, weights, mutex);
    (void)rank.trainer->result(1);
    EXPECT_NO_THROW((void)rank.trainer->state());
    return weights;
  };
  Machine machine({.order = GetParam()});
  EXPECT_TRUE(weights_behind(&machine) == weights_behind(nullptr));
}

// A trainer goes while the weights of its last step are under way.
TEST_P(Late, WeightsArriveBeforeTheirMemoryGoes) {
  for (const uint64_t seed : seeds()) {
    Machine machine({.order = GetParam(), .seed = seed});
    run_thread_ranks(2, [&](HostCommunicator& world) {
      const auto queue = machine.make_queue("compute of rank " + std::to_string(world.rank()));
      LateCase c{.name = "zero", .dp = 2, .zero = 1, .bucket_elements = 200};
      RankTrainer rank(c.config(), world, {.queue = queue.get()});
      const SampleReader read = random_samples(rank.config.train.sequence_length, rank.config.model.vocab);
      EXPECT_GT(rank.step(1, read).loss, 0);
    });
  }
}

// Weight gradients as an action of their own, and later than their backward.
TEST_P(Late, DeferredWeightGradientsHaveTheSameBits) {
  for (LateCase c : kCases) {
    const LateRun expected = train_late(c, c.config(), nullptr);
    for (const int behind : {0, 1, 9}) {
      c.schedule = Schedule{.kind = c.pipeline, .deferred = true, .delay = behind};
      SCOPED_TRACE(c.name + ", " + std::to_string(behind) + " deferred");
      EXPECT_TRUE(train_late(c, c.config(), nullptr) == expected);
      Machine machine({.order = GetParam(), .seed = 5});
      EXPECT_TRUE(train_late(c, c.config(), &machine) == expected) << "late";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, Late, ::testing::ValuesIn(kOrders),
                         [](const auto& order) { return name_of(order.param); });

// ---- what is under way together -------------------------------------------------------------------------------------
// The host hands a step over without waiting for any of it.
TEST(LateHost, WaitsForNothingInsideAStep) {
  Machine machine({.order = Order::late, .keeps_log = true});
  const auto queue = machine.make_queue("compute");
  const auto world = make_single_world();
  RunConfig config = late_config();
  config.train.global_batch = 2;  // as many microbatches as the staging has slots
  RankTrainer rank(config, *world, {.queue = queue.get()});
  const size_t before = machine.log().size();
  const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
  rank.trainer->step(1, rank.reader(1, read), false);
  EXPECT_EQ(machine.log().size(), before);
  (void)rank.trainer->result(1);
  EXPECT_GT(machine.log().size(), before);
}

// Uploads have a stream of their own: as many microbatches as both kinds of slots hold are handed over before any of
// them is computed.
TEST(LateHost, UploadsDoNotStandBehindComputation) {
  Machine machine({.order = Order::late, .keeps_log = true});
  const auto queue = machine.make_queue("compute");
  const auto world = make_single_world();
  RunConfig config = late_config();
  config.train.global_batch = 4;
  RankTrainer rank(config, *world, {.queue = queue.get()});
  const size_t before = machine.log().size();
  const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
  rank.trainer->step(1, rank.reader(1, read), false);
  const auto computed = [&] {
    const std::vector<Machine::Entry> log = machine.log();
    return std::count_if(log.begin() + static_cast<ptrdiff_t>(before), log.end(),
                         [](const Machine::Entry& entry) { return entry.queue == "compute"; });
  };
  EXPECT_GT(machine.log().size(), before);  // the first two uploads, for whose slots the host has waited
  EXPECT_EQ(computed(), 0);
  (void)rank.trainer->result(1);
  EXPECT_GT(computed(), 0);
}

// Stage 1 of 2 waits for rows while it computes: its receive begins before its own work and ends after it.
TEST(LatePipeline, ReceivesAreUnderWayDuringComputation) {
  Machine machine({.order = Order::uneven, .seed = 1, .keeps_log = true});
  const LateCase c{.name = "pp 2", .pp = 2};
  train_late(c, c.config(), &machine);
  int overlaps = 0, computed = 0;  // operations of rank 1
  std::map<std::pair<std::string, int64_t>, int> began;  // how many had computed when a message of rank 1 began
  for (const Machine::Entry& entry : machine.log()) {
    if (entry.queue == "compute of rank 1") {
      computed += entry.begins ? 1 : 0;
    } else if (entry.queue == "pp, rank 1") {
      int& then = began[{entry.queue, entry.number}];
      if (!entry.begins && computed > then) ++overlaps;
      then = computed;
    }
  }
  EXPECT_GT(overlaps, 0);
}

}  // namespace
}  // namespace shiftron::testing
