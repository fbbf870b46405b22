// The self-test passes if everything is right, and fails if a kernel, a step or a communicator is wrong.
#include "evaluate/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/all_cases.h"
#include "train/small_model.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using kernel_testing::KernelCase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<KernelCase> few_cases() {
  std::vector<KernelCase> cases;
  kernel_testing::add_rms_norm_cases(cases, 7, 13);
  kernel_testing::add_swiglu_cases(cases, 7, 13);
  return cases;
}

// The device's body of this call gives one result that is off by `error`.
KernelCase with_fault(KernelCase call, double error) {
  const auto run = call.run;
  call.run = [run, error](Stream& stream, const std::vector<Tensor>& tensors) {
    run(stream, tensors);
    if (stream.device == DeviceKind::meta || stream.cpu.bodies == Bodies::specification) return;
    kernel_testing::put(tensors[2], 5, kernel_testing::get(tensors[2], 5) + error);
  };
  return call;
}

SelfTestReport kernels_of(const std::vector<KernelCase>& cases) {
  Ledger ledger;
  Stream stream{.ledger = &ledger, .cpu = {.threads = 1}};
  SelfTestReport report;
  check_kernels(stream, cases, {0}, {}, report);
  return report;
}

std::vector<std::string> names(const std::vector<SelfCheck>& checks) {
  std::vector<std::string> of_all;
  for (const SelfCheck& check : checks) of_all.push_back(check.name + " " + check.type);
  return of_all;
}
std::vector<std::string> failed_names(const SelfTestReport& report) {
  return names(report.failures());
}

TEST(SelfTestKernels, AWrongResultFailsItsKernelAlone) {
  std::vector<KernelCase> cases = few_cases();
  EXPECT_THAT(failed_names(kernels_of(cases)), IsEmpty());
  cases[0] = with_fault(cases[0], 1e-5);  // y of the norm: beyond rounding of float32, not of bfloat16
  const SelfTestReport report = kernels_of(cases);
  EXPECT_THAT(failed_names(report), ElementsAre("rms_norm_forward float32"));
  EXPECT_THAT(verdict(report), HasSubstr("rms_norm_forward in float32, rank 0: 1 of 2 calls"));
  EXPECT_THAT(verdict(report), HasSubstr("rms_norm_forward_7_13: y"));
  cases[0] = with_fault(few_cases()[0], NAN);
  EXPECT_THAT(failed_names(kernels_of(cases)), ElementsAre("rms_norm_forward float32", "rms_norm_forward bfloat16"));
}

TEST(SelfTestKernels, HoldEveryKernelOfTraining) {
  std::set<std::string> checked = {"upload", "download"};  // which every call on a device takes
  for (const KernelCase& call : self_test_cases(SelfTestSize::small)) {
    checked.insert(evaluate(call, {.device = DeviceKind::meta}).cost.begin()->first);
  }
  for (const testing::NamedShift& shift : testing::all_shifts()) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const RunConfig config = testing::small_config(shift.shift, precision);
      Ledger planned;
      plan_memory(config, {}, 0, 1, planned);
      for (const auto& [kernel, cost] : planned.kernels()) EXPECT_EQ(checked.count(kernel), 1u) << kernel;
    }
  }
}

std::vector<std::string> failures_of(const TrainingTrace& found, const TrainingTrace& expected, Precision precision) {
  SelfTestReport report;
  compare_training(found, expected, precision, report);
  return failed_names(report);
}

TEST(SelfTestTraining, AStepThatDiffersFails) {
  const TrainingTrace right{.losses = {4, 3, 2}, .norms = {1, 1, 1}};
  EXPECT_THAT(failures_of(right, right, Precision::fp32), IsEmpty());
  TrainingTrace wrong = right;
  wrong.losses[2] *= 1 + 1e-5;
  EXPECT_THAT(failures_of(wrong, right, Precision::fp32), ElementsAre("loss fp32"));
  EXPECT_THAT(failures_of(wrong, right, Precision::bf16), IsEmpty());
  wrong = right;
  wrong.norms[0] = NAN;
  EXPECT_THAT(failures_of(wrong, right, Precision::bf16), ElementsAre("gradient norm bf16"));
  wrong = right;
  wrong.losses.pop_back();
  EXPECT_THAT(failures_of(wrong, right, Precision::fp32), ElementsAre("loss fp32"));
}

TEST(SelfTestTraining, TheFullSizeIsLargerInEveryWay) {
  const RunConfig small = self_test_config(SelfTestSize::small, Precision::fp32);
  const RunConfig full = self_test_config(SelfTestSize::full, Precision::fp32);
  EXPECT_GT(full.model.hidden, small.model.hidden);
  EXPECT_GT(full.model.head_dim, small.model.head_dim);
  EXPECT_GT(full.model.ffn, small.model.ffn);
  EXPECT_GT(full.model.vocab, small.model.vocab);
  EXPECT_LT(full.model.init_std, small.model.init_std);
  EXPECT_GT(full.train.sequence_length, small.train.sequence_length);
}

// An update that is not applied as it should be shows in the steps after it.
TEST(SelfTestTraining, AnUpdateThatDiffersFails) {
  RunConfig config = self_test_config(SelfTestSize::small, Precision::fp32);
  Ledger ledger;
  Stream stream{.ledger = &ledger, .cpu = {.threads = 1}};
  const TrainingTrace expected = train_briefly(config, stream);
  config.optimizer.weight_decay = 0.2;
  const TrainingTrace found = train_briefly(config, stream);
  EXPECT_EQ(found.losses[0], expected.losses[0]);
  EXPECT_THAT(failures_of(found, expected, Precision::fp32), ElementsAre("loss fp32", "gradient norm fp32"));
}

// Forwards all but sums, of which it returns the largest part.
class Faulty final : public Communicator {
 public:
  explicit Faulty(HostCommunicator& real) : RankGroup("faulty", real.rank(), real.size()), real_(real) {}
  Work all_reduce(Stream& stream, InOut tensor, Reduction) override {
    return real_.all_reduce(stream, tensor, Reduction::max);
  }
  Work all_gather(Stream& stream, ConstTensor piece, Tensor whole) override {
    return real_.all_gather(stream, piece, whole);
  }
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) override {
    return real_.reduce_scatter(stream, whole, piece);
  }
  Work all_to_all(Stream& stream, ConstTensor send, Tensor receive) override {
    return real_.all_to_all(stream, send, receive);
  }
  Work broadcast(Stream& stream, InOut tensor, int root) override { return real_.broadcast(stream, tensor, root); }
  Work send(Stream& stream, ConstTensor tensor, int to, int most_ahead) override {
    return real_.send(stream, tensor, to, most_ahead);
  }
  Work recv(Stream& stream, Tensor tensor, int from) override { return real_.recv(stream, tensor, from); }
  void abandon() noexcept override { real_.abandon(); }

 private:
  HostCommunicator& real_;
};

TEST(SelfTestRanks, AWrongOperationFailsAlone) {
  run_thread_ranks(3, [](HostCommunicator& world) {
    Ledger ledger;
    Stream stream{.ledger = &ledger, .cpu = {.threads = 1}};
    SelfTestReport right, wrong;
    check_communicator(stream, world, SelfTestSize::small, right);
    EXPECT_THAT(failed_names(right), IsEmpty());
    EXPECT_EQ(right.checks.size(), 12u);  // six operations in two types
    Faulty faulty(world);
    check_communicator(stream, faulty, SelfTestSize::small, wrong);
    EXPECT_THAT(failed_names(wrong), ElementsAre("all_reduce float32", "all_reduce bfloat16"));
  });
}

// In each of four rounds: a message received, one sent, and sums over two groups.
TEST(SelfTestRanks, GroupsAtOnceAreCompared) {
  run_thread_ranks(4, [](HostCommunicator& world) {
    Ledger ledger;
    Stream stream{.ledger = &ledger, .cpu = {.threads = 1}};
    SelfTestReport report;
    check_groups_at_once(stream, world, SelfTestSize::small, report);
    EXPECT_THAT(names(report.checks), ElementsAre("groups at once float32"));
    EXPECT_THAT(failed_names(report), IsEmpty());
    EXPECT_EQ(report.checks.front().calls, 4 * 4);
  });
}

TEST(SelfTest, PassesOnTheHostAndCountsAllRanks) {
  run_thread_ranks(2, [](HostCommunicator& world) {
    const SelfTestReport report = run_self_test({.size = SelfTestSize::small, .cases = few_cases()}, world);
    EXPECT_EQ(verdict(report), "");
    if (world.rank() > 0) return;
    std::set<std::string> sections;
    std::set<int> ranks;
    for (const SelfCheck& check : report.checks) {
      sections.insert(check.section);
      ranks.insert(check.rank);
      EXPECT_GT(check.calls, 0) << check.name;
    }
    EXPECT_THAT(sections, ElementsAre("communicators", "kernels", "training"));
    EXPECT_THAT(ranks, ElementsAre(0, 1));
    EXPECT_EQ(report.rates.size(), 10u);  // five of each rank
    for (const MeasuredRate& rate : report.rates) EXPECT_GT(rate.rate, 0) << rate.name;
    EXPECT_TRUE(to_json(report)["passed"]);
    EXPECT_THAT(to_text(report), HasSubstr("swiglu_forward"));
  });
}

TEST(SelfTest, ACallThatThrowsFailsAndTheOthersGoOn) {
  const std::vector<std::string> all = names(kernels_of(few_cases()).checks);
  std::vector<KernelCase> cases = few_cases();
  cases[1].run = [run = cases[1].run](Stream& stream, const std::vector<Tensor>& tensors) {
    run(stream, tensors);
    if (stream.device != DeviceKind::meta) throw_crash("it is refused");
  };
  const auto world = make_single_world();
  const SelfTestReport report = run_self_test({.size = SelfTestSize::small, .cases = cases}, *world);
  EXPECT_THAT(failed_names(report), ElementsAre("add_rms_norm_forward float32", "add_rms_norm_forward bfloat16"));
  EXPECT_THAT(verdict(report), HasSubstr("add_rms_norm_forward_7_13: it is refused"));
  EXPECT_FALSE(to_json(report)["passed"]);
  for (const std::string& name : all) EXPECT_THAT(names(report.checks), Contains(name));
  EXPECT_EQ(report.checks.back().section, "communicators");
}

TEST(SelfTest, APartThatEndsInAnErrorFailsAndTheOthersGoOn) {
  SelfTestOptions options{.size = SelfTestSize::small, .cases = few_cases()};
  options.progress = [](const std::string&, size_t, size_t) { throw_crash("the terminal is gone"); };
  const auto world = make_single_world();
  const SelfTestReport report = run_self_test(options, *world);
  EXPECT_THAT(failed_names(report), ElementsAre("the whole part "));
  EXPECT_THAT(verdict(report), HasSubstr("the terminal is gone"));
  EXPECT_EQ(report.checks.back().section, "communicators");
}

TEST(SelfTestReport, TheWorstCallOfTheWorstRankSpeaksForAll) {
  SelfCheck check{.section = "kernels", .name = "add", .type = "float32"};
  check.add("small", 1e-7, 1e-6);
  check.add("large", 5e-7, 1e-6);
  check.add("middle", 2e-7, 1e-6);
  EXPECT_EQ(check.worst, "large");
  EXPECT_TRUE(check.passed());
  SelfTestReport report{.ranks = 2, .checks = {check}};
  check.rank = 1;
  check.add("beyond", NAN, 1e-6);
  EXPECT_FALSE(check.passed());
  report.checks.push_back(check);
  EXPECT_THAT(to_text(report), HasSubstr("      7 "));  // calls of both
  EXPECT_THAT(to_text(report), HasSubstr("1 FAILED"));
  EXPECT_THAT(to_text(report), HasSubstr("beyond (rank 1)"));
  const SelfTestReport read = report_from_json(to_json(report).dump());
  EXPECT_EQ(verdict(read), verdict(report));
  EXPECT_EQ(to_json(read)["checks"], to_json(report)["checks"]);
}

}  // namespace
}  // namespace shiftron
