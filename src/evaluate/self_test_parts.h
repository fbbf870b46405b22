// The parts of a self-test, each in its own file. Each adds to a report, and throws an Error if it cannot go through.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "config/run_config.h"
#include "core/enum_names.h"
#include "core/stream.h"
#include "evaluate/self_test_report.h"
#include "kernels/kernel_call.h"
#include "parallel/host_communicator.h"

namespace shiftron {

enum class SelfTestSize { small, full };
constexpr std::array<const char*, 2> names_of(SelfTestSize) {
  return {"small", "full"};
}

// self_test.cpp. Why the stream's device no longer works; "" if it works. For example, after a kernel's illegal address
// every CUDA call fails.
std::string device_fault(Stream& stream);

// self_test_kernels.cpp. Calls of every kernel: awkward shapes, followed in a full test by those of training.
std::vector<kernel_testing::KernelCase> self_test_cases(SelfTestSize size);
// Compares each call in the stream with its reference implementation, in float32 and bfloat16. `paddings`: elements
// between rows. A call that throws has failed. If the device no longer works, the part ends.
void check_kernels(Stream& stream, const std::vector<kernel_testing::KernelCase>& cases,
                   const std::vector<int64_t>& paddings, const std::function<void(size_t calls)>& notify,
                   SelfTestReport& report);

// self_test_training.cpp. Losses and gradient norms of three steps.
struct TrainingTrace {
  std::vector<double> losses, norms;
};
RunConfig self_test_config(SelfTestSize size, Precision precision);
TrainingTrace train_briefly(const RunConfig& config, Stream& stream);
void compare_training(const TrainingTrace& found, const TrainingTrace& expected, Precision precision,
                      SelfTestReport& report);
// Compares steps in the stream with the same steps by the CPU reference implementation.
void check_training(Stream& stream, SelfTestSize size, SelfTestReport& report);

// self_test_ranks.cpp. Every operation of a communicator, on all ranks of `group`, which all call it.
void check_communicator(Stream& stream, Communicator& group, SelfTestSize size, SelfTestReport& report);
// Concurrent sums over dp and tp and messages between two stages, on all ranks of `world`. Does nothing unless their
// number is a multiple of 4.
void check_groups_at_once(Stream& stream, HostCommunicator& world, SelfTestSize size, SelfTestReport& report);

// self_test_rates.cpp. Measures rates of the stream's device; `device` is its name.
void measure_rates(Stream& stream, SelfTestSize size, const std::string& device, SelfTestReport& report);
void measure_all_reduce(Stream& stream, Communicator& group, SelfTestSize size, SelfTestReport& report);

}  // namespace shiftron
