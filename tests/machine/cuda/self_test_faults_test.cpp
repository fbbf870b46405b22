// The self-test if a kernel destroys a device's context, as an illegal address does: every later call there fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/self_test.h"
#include "kernels/all_cases.h"
#include "machine/cuda/injection.h"
#include "machine/cuda/nccl.h"
#include "machine/cuda/streams.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using kernel_testing::KernelCase;
using ::testing::Each;
using ::testing::HasSubstr;

// The second one breaks a device in bfloat16; of the others none does.
std::vector<KernelCase> cases_of_which_one_breaks() {
  std::vector<KernelCase> cases;
  kernel_testing::add_rms_norm_cases(cases, 7, 13);
  kernel_testing::add_swiglu_cases(cases, 7, 13);
  cases[1].run = [run = cases[1].run](Stream& stream, const std::vector<Tensor>& tensors) {
    run(stream, tensors);
    const bool narrow = tensors[0].dtype() == DType::bfloat16;
    if (stream.device == DeviceKind::cuda && narrow) machine::injection()->lose_device();
  };
  return cases;
}

SelfTestOptions options_of(const std::vector<KernelCase>& cases, int rank) {
  return {.device = DeviceChoice::cuda, .size = SelfTestSize::small, .share = {.local_rank = rank}, .cases = cases};
}

std::vector<std::string> lines_of(const std::vector<SelfCheck>& checks, int rank) {
  std::vector<std::string> lines;
  for (const SelfCheck& check : checks) {
    if (check.rank == rank) lines.push_back(check.section + ": " + check.name + " " + check.type);
  }
  return lines;
}

TEST(SelfTestFaults, WhatWasCollectedIsToldWithTheCallThatBrokeTheDevice) {
  machine::restart_device({.patience = scaled(20)});
  const machine::InjectionScope scope(std::make_shared<machine::Injection>());
  const auto world = make_single_world();
  const SelfTestReport report = run_self_test(options_of(cases_of_which_one_breaks(), 0), *world);
  EXPECT_THAT(
      lines_of(report.checks, 0),
      ::testing::ElementsAre("kernels: add_rms_norm_forward float32", "kernels: rms_norm_forward float32",
                             "kernels: rms_norm_forward bfloat16", "kernels: add_rms_norm_forward bfloat16",
                             "rates: the whole part ", "training: the whole part ", "communicators: the whole part "));
  EXPECT_THAT(lines_of(report.failures(), 0),
              ::testing::ElementsAre("kernels: add_rms_norm_forward bfloat16", "rates: the whole part ",
                                     "training: the whole part ", "communicators: the whole part "));
  EXPECT_THAT(verdict(report), HasSubstr("add_rms_norm_forward_7_13: "));
  EXPECT_THAT(verdict(report), HasSubstr("unspecified launch failure"));
  EXPECT_THAT(verdict(report), HasSubstr("the 4 cases after it were not run"));
}

TEST(SelfTestFaults, RanksWhoseDeviceWorksDoNotWaitForOneWhoseDoesNot) {
  machine::restart_device({.patience = scaled(20)});
  machine::set_nccl({.patience = scaled(2)});
  run_thread_ranks(3, [](HostCommunicator& world) {
    const machine::InjectionScope scope(std::make_shared<machine::Injection>());
    std::vector<KernelCase> cases = cases_of_which_one_breaks();
    if (world.rank() != 1) cases.erase(cases.begin() + 1);
    const SelfTestReport report = run_self_test(options_of(cases, world.rank()), world);
    if (world.rank() > 0) return;
    EXPECT_THAT(lines_of(report.failures(), 1),
                ::testing::ElementsAre("kernels: add_rms_norm_forward bfloat16", "rates: the whole part ",
                                       "training: the whole part ", "communicators: the whole part "));
    EXPECT_THAT(verdict(report), HasSubstr("skipped by all ranks, because this rank's device no longer works: "));
    EXPECT_THAT(to_text(report), HasSubstr("skipped by all ranks"));
    for (const int rank : {0, 2}) {
      EXPECT_THAT(lines_of(report.failures(), rank), ::testing::IsEmpty());
      EXPECT_EQ(lines_of(report.checks, rank).size(), 12u);  // eight of kernels, four of training
      EXPECT_THAT(lines_of(report.checks, rank), Each(::testing::Not(HasSubstr("communicators"))));
    }
  });
  machine::set_nccl({});
}

}  // namespace
}  // namespace shiftron
