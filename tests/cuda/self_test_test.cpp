// The self-test on a device: every part once, with few kernels, alone and on several ranks.
#include "evaluate/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/gpus.h"
#include "kernels/all_cases.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

SelfTestOptions few(const std::vector<kernel_testing::KernelCase>& more = {}) {
  SelfTestOptions options{.device = DeviceChoice::cuda, .size = SelfTestSize::small};
  kernel_testing::add_rms_norm_cases(options.cases, 7, 13);
  options.cases.insert(options.cases.end(), more.begin(), more.end());
  return options;
}

TEST(SelfTestOnADevice, Passes) {
  for (const int ranks : {1, 2, 4}) {
    NEED_GPUS(ranks);
    run_thread_ranks(ranks, [](HostCommunicator& world) {
      SelfTestOptions options = few();
      options.share.local_rank = world.rank();
      const SelfTestReport report = run_self_test(options, world);
      EXPECT_EQ(verdict(report), "");
      EXPECT_EQ(report.device, device_name());
      const auto at_once = [](const SelfCheck& check) { return check.name == "groups at once"; };
      EXPECT_EQ(std::ranges::any_of(report.checks, at_once), world.size() == 4);
    });
  }
}

// The call writes elsewhere on the device than on the host.
TEST(SelfTestOnADevice, AWrongKernelFails) {
  std::vector<kernel_testing::KernelCase> cases;
  kernel_testing::add_swiglu_cases(cases, 7, 16);
  cases[0].run = [run = cases[0].run](Stream& stream, const std::vector<Tensor>& tensors) {
    run(stream, tensors);
    if (stream.device == DeviceKind::cuda) fill_zero(stream, tensors[2].rows(6, 1));
  };
  const auto world = make_single_world();
  const SelfTestReport report = run_self_test(few({cases[0]}), *world);
  ASSERT_EQ(report.failures().size(), 2u);  // in both types
  EXPECT_EQ(report.failures()[0].name, "swiglu_forward");
  EXPECT_THAT(verdict(report), ::testing::HasSubstr("swiglu_forward_7_16: y"));
}

}  // namespace
}  // namespace shiftron
