// What choosing and adopting algorithms ask of CUDA and its libraries: what loads, compiles or frees may wait for the
// whole device, and is done before the first step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "cuda/blas.h"
#include "cuda/device_testing.h"
#include "cuda/device_training.h"
#include "cuda/dnn.h"
#include "machine/cuda/counts.h"
#include "machine/cuda/injection.h"
#include "train/library_choices.h"

namespace shiftron::testing {
namespace {

using kernel_testing::CudaDevice;
using kernel_testing::DeviceOwner;
using kernel_testing::expect_done;

// Of the whole process.
struct Made {
  int64_t plans = machine::finalized_plans();
  int64_t heuristics = machine::heuristics_asked();
  int64_t checks = machine::algorithms_checked();
  bool operator==(const Made&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Made& made) {
  return out << made.plans << " plans, " << made.heuristics << " heuristics, " << made.checks << " checks";
}
Made operator+(Made made, const Made& more) {
  return {made.plans + more.plans, made.heuristics + more.heuristics, made.checks + more.checks};
}

// A device with memory, on which two problems of attention and two products were done.
class UsedDevice {
 public:
  explicit UsedDevice(bool timed = false) {
    void* memory = nullptr;
    expect_done(cudaMalloc(&memory, kBytes));
    memory_.reset(memory);
    expect_done(cudaMemsetAsync(memory, 0, kBytes, device_.handle()));
    device_.products().time_candidates(timed);
    device_.attention().time_candidates(timed);
    use();
  }
  ~UsedDevice() { device_.wait(); }
  void use() {
    for (const AttentionProblem& problem : {attention(1), attention(2)}) attend(problem);
    for (const int64_t size : {8, 16}) multiply(size);
  }
  void multiply(int64_t size) {
    const ProductShape shape{.m = size,
                             .n = size,
                             .k = size,
                             .adds = true,
                             .a_stride = size,
                             .b_stride = size,
                             .c_stride = size,
                             .alignment = 16};
    device_.products().run(device_.handle(), shape, place(0), place(1), nullptr, place(2));
  }
  CudaProducts& products() { return device_.products(); }
  CudaAttention& attention() { return device_.attention(); }

 private:
  static constexpr int64_t kPlace = 8192, kBytes = int64_t{1} << 20;

  char* place(int64_t number) const { return static_cast<char*>(memory_.get()) + number * kPlace; }
  static AttentionProblem attention(int64_t samples) {
    AttentionProblem problem{.samples = samples, .length = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
    problem.documents = false;
    problem.q = problem.k = problem.v = problem.out = {8, 8};
    problem.statistics = 4 * samples;
    return problem;
  }
  void attend(const AttentionProblem& problem) {
    const Tensor scratch(place(8), DType::float32, {4096}, DeviceKind::cuda);
    ASSERT_TRUE(attention().serves(problem, scratch.bytes()));
    attention().run(device_.handle(), problem,
                    {{cuda::kQuery, place(3)},
                     {cuda::kKey, place(4)},
                     {cuda::kValue, place(5)},
                     {cuda::kOut, place(6)},
                     {cuda::kStatistics, place(7)}},
                    scratch);
  }

  CudaDevice device_;
  DeviceOwner<void> memory_;
};

// As another rank chose it: engine 2 is not the first.
AttentionChoice another(const AttentionChoice& choice) {
  EXPECT_EQ(choice.engine, 1);
  AttentionChoice other = choice;
  other.engine = 2;
  ++other.knobs.begin()->second;
  other.seconds = 1;
  return other;
}

ProductChoices other_products() {
  machine::seed_products(1);
  ProductChoices chosen = UsedDevice().products().choices();
  machine::seed_products(0);
  return chosen;
}

TEST(AdoptedChoices, ThatAreTheSameAskForNothing) {
  for (const bool timed : {false, true}) {
    UsedDevice device(timed);
    const Made before;
    AttentionChoices attention = device.attention().choices();
    for (auto& [problem, choice] : attention.of) choice.seconds += 1;
    device.attention().adopt(attention);
    device.products().adopt(device.products().choices());
    EXPECT_EQ(Made(), before);
    device.use();
    EXPECT_EQ(Made(), before);
  }
}

// To adopt `chosen` makes `more`, once, and nothing is made in their use.
template <typename Library, typename Chosen>
void expect_made_at_adoption(UsedDevice& device, Library& library, const Chosen& chosen, const Made& more) {
  const Made expected = Made() + more;
  library.adopt(chosen);
  EXPECT_EQ(Made(), expected);
  library.adopt(chosen);
  device.use();
  EXPECT_EQ(Made(), expected);
  EXPECT_EQ(library.choices(), chosen);
}

TEST(AdoptedChoices, OfAttentionThatDifferArePlannedAtOnce) {
  UsedDevice device;
  AttentionChoices chosen = device.attention().choices();
  ASSERT_EQ(chosen.of.size(), 2u);
  AttentionChoice& changed = chosen.of.begin()->second;
  changed = another(changed);
  expect_made_at_adoption(device, device.attention(), chosen, {1, 0, 0});
}

// Two ranks that found another engine faster.
TEST(AdoptedChoices, OfAttentionAmongThoseThatWereTimedArePlanned) {
  constexpr int64_t kDelay = 30;  // milliseconds; these take far less
  machine::delay_engine(1, kDelay);
  UsedDevice device(true);
  machine::delay_engine(2, kDelay);
  const AttentionChoices chosen = UsedDevice(true).attention().choices();
  machine::delay_engine(0, 0);
  ASSERT_NE(device.attention().choices().of.begin()->second.engine, chosen.of.begin()->second.engine);
  const Made before;
  device.attention().adopt(chosen);
  device.use();
  EXPECT_EQ(Made(), before);
  EXPECT_EQ(device.attention().choices(), chosen);
}

// What another rank planned, and this one did not.
TEST(AdoptedChoices, OfAttentionThatWasRefusedArePlannedAtOnce) {
  AttentionProblem problem;
  AttentionChoices chosen;
  {
    UsedDevice device;
    chosen = device.attention().choices();
    problem = chosen.of.begin()->first;
  }
  CudaAttention attention("a device");
  EXPECT_FALSE(attention.serves(problem, 0));
  const Made expected = Made() + Made{1, 0, 0};
  attention.adopt(chosen);
  EXPECT_EQ(Made(), expected);
  EXPECT_TRUE(attention.serves(problem, 8192));
  EXPECT_EQ(Made(), expected);
}

TEST(AdoptedChoices, OfProductsThatDifferAreCheckedAtOnce) {
  const ProductChoices others = other_products();
  UsedDevice device;
  ProductChoices chosen = device.products().choices();
  ASSERT_EQ(chosen.of.size(), 2u);
  ProductChoice& changed = chosen.of.begin()->second;
  const ProductChoice& other = others.of.at(chosen.of.begin()->first);
  ASSERT_NE(changed.algorithm, other.algorithm) << "take another seed";
  changed = other;
  expect_made_at_adoption(device, device.products(), chosen, {0, 0, 1});
}

RunConfig config_of(const ParallelSection& parallel) {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::bf16);
  config.device.kind = DeviceChoice::cuda;
  config.model.hidden = 32;  // heads as cuDNN takes them
  config.model.head_dim = 8;
  config.train.sequence_length = 16;
  config.parallel = parallel;
  return config;
}

TEST(AdoptedChoices, LeaveNothingToTheFirstStep) {
  for (const ParallelSection& parallel : {ParallelSection{}, ParallelSection{.tp = 2}, ParallelSection{.pp = 2}}) {
    SCOPED_TRACE(::testing::Message() << "tp " << parallel.tp << " pp " << parallel.pp);
    const RunConfig config = config_of(parallel);
    run_thread_ranks(parallel.tp * parallel.pp, [&](HostCommunicator& world) {
      Ledger ledger;
      DeviceRank rank(config, world, ledger);
      Log log;
      const std::string agreed = choose_algorithms(config, *rank.trainer, rank.reader(1), world, "", "", log);
      EXPECT_NE(agreed.find("\"engine\""), std::string::npos) << "no attention was planned";
      world.barrier();
      const Made before;
      world.barrier();
      rank.step(1);
      world.barrier();
      EXPECT_EQ(Made(), before);
    });
  }
}

// If the GPU has no memory for what another rank chose, this is reported, and nothing is chosen again.
TEST(AdoptedChoices, ThatLackMemoryAreNotForeign) {
  RunConfig config = config_of({});
  config.train.deterministic = Deterministic::repeat;
  const auto world = make_single_world();
  Ledger ledger;
  DeviceRank rank(config, *world, ledger);
  Log log;
  const auto choose = [&](const std::string& kept) {
    return choose_algorithms(config, *rank.trainer, rank.reader(1), *world, kept, "kept", log);
  };
  auto kept = nlohmann::ordered_json::parse(choose(""));
  AttentionChoices attention = attention_choices_from(kept.at("attention").dump(), "own");
  AttentionChoice& changed = attention.of.begin()->second;
  changed = another(changed);
  kept["attention"] = nlohmann::ordered_json::parse(to_json(attention));
  {
    const machine::InjectionScope scope(std::make_shared<machine::Injection>(machine::CallKind::attention, 1));
    kernel_testing::expect_fault("cudnnBackendCreateDescriptor", [&] { choose(kept.dump()); });
  }
  EXPECT_EQ(nlohmann::ordered_json::parse(choose(kept.dump())), kept);
}

TEST(TimedCandidates, ThatFailAreTold) {
  const auto world = make_single_world();
  Ledger ledger;
  const RunConfig config = config_of({});
  DeviceRank rank(config, *world, ledger);
  Log log;
  machine::fail_engine(1, CUDNN_STATUS_EXECUTION_FAILED);
  choose_algorithms(config, *rank.trainer, rank.reader(1), *world, "", "", log);
  machine::fail_engine(0, CUDNN_STATUS_SUCCESS);
  EXPECT_THAT(rank.trainer->engine().libraries().untimed(),
              ::testing::Contains(::testing::StartsWith("engine 1 fails: cudnnBackendExecute for attention")));
}

TEST(TimedCandidates, AreFreedBehindTheTiming) {
  UsedDevice device;
  device.products().time_candidates(true);
  const machine::Counts before = machine::counts();
  for (const int64_t size : {24, 20, 32, 28}) device.multiply(size);
  const machine::Counts timed = machine::counts() - before;
  EXPECT_EQ(timed.device_allocations, 2);  // for 24 and 32
  EXPECT_EQ(timed.frees, 0);
  device.products().time_candidates(false);
  EXPECT_EQ((machine::counts() - before).frees, 3);  // those, and what emptied the cache
}

}  // namespace
}  // namespace shiftron::testing
