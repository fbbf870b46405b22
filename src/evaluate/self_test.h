// The self-test: is what this machine's device computes right, and how fast is it?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/host.h"
#include "evaluate/self_test_parts.h"
#include "parallel/host_communicator.h"

namespace shiftron {

struct SelfTestOptions {
  DeviceChoice device = DeviceChoice::cpu;
  SelfTestSize size = SelfTestSize::full;
  HostShare share{};                                // of this rank
  std::vector<kernel_testing::KernelCase> cases{};  // of kernels; none: all
  std::string libraries{};                          // that the program was built with
  // Told before each part, and while it goes on.
  std::function<void(const std::string& part)> begin{};
  std::function<void(const std::string& part, size_t done, size_t of)> progress{};
};

// All ranks of `world` call it, each with its own device; rank 0 gets what all of them found, the others their own. A
// part that ends in an Error is a failed check of the report.
SelfTestReport run_self_test(const SelfTestOptions& options, HostCommunicator& world);

}  // namespace shiftron
