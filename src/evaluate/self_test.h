// The self-test: does this machine's device compute correctly, and how fast is it?
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
  std::vector<kernel_testing::KernelCase> cases{};  // of kernels; empty: all
  std::string libraries{};                          // libraries that the program was built with
  // Called before each part, and during it.
  std::function<void(const std::string& part)> begin{};
  std::function<void(const std::string& part, size_t done, size_t of)> progress{};
};

// All ranks of `world` call it, each with its own device. Rank 0 gets the results of all ranks, the others only their
// own. A part that ends in an Error counts as a failed check.
SelfTestReport run_self_test(const SelfTestOptions& options, HostCommunicator& world);

}  // namespace shiftron
