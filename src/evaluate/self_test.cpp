// Runs the parts in order, on each rank and over all ranks.
#include "evaluate/self_test.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/event.h"
#include "core/has_cuda.h"
#include "core/host.h"
#include "core/queue_cuda.h"
#include "core/system_error.h"
#include "kernels/libraries.h"
#include "parallel/agree.h"
#include "parallel/run.h"
#include "train/device.h"

namespace shiftron {
namespace {

constexpr const char* kOfAllRanks = "communicators";

void add_stopped(const std::string& part, const std::string& why, SelfTestReport& report) {
  SelfCheck stopped{.section = part, .name = "the whole part", .reason = part + ": no error"};
  stopped.add(why, NAN, 0);
  report.checks.push_back(stopped);
}

// An exception in a part makes it fail; the other parts still run.
void run_part(const SelfTestOptions& options, const std::string& part, SelfTestReport& report,
              const std::function<void()>& body) {
  if (options.begin) options.begin(part);
  try {
    body();
  } catch (const std::exception& exception) {
    if (report.ranks > 1 && part == kOfAllRanks) throw;  // the others wait for this one
    add_stopped(part, as_error(exception).what(), report);
  }
}

// Without this check, ranks whose devices work would wait forever. The others report why the part is skipped.
bool all_devices_work(Stream& stream, HostCommunicator& world, SelfTestReport& report) {
  const std::string fault = device_fault(stream);
  const bool works = fault.empty();
  if (!works)
    add_stopped(kOfAllRanks, "skipped by all ranks, because this rank's device no longer works: " + fault, report);
  return find_matching_ranks(world, works ? "works" : "fails").count == world.size() && works;
}

void gather(HostCommunicator& world, SelfTestReport& report) {
  for (SelfCheck& check : report.checks) check.rank = world.rank();
  for (MeasuredRate& rate : report.rates) rate.rank = world.rank();
  const std::vector<std::string> all = world.gather_text(to_json(report).dump(), 0);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const SelfTestReport other = report_from_json(all[rank]);
    report.checks.insert(report.checks.end(), other.checks.begin(), other.checks.end());
    report.rates.insert(report.rates.end(), other.rates.begin(), other.rates.end());
  }
}

}  // namespace

std::string device_fault(Stream& stream) {
  try {
    finish(stream);
  } catch (const std::exception& exception) {
    return as_error(exception).what();
  }
  return "";
}

SelfTestReport run_self_test(const SelfTestOptions& options, HostCommunicator& world) {
  const auto start = std::chrono::steady_clock::now();
  SelfTestReport report{.device = "cpu",
                        .host = host_name(),
                        .libraries = options.libraries,
                        .size = to_string(options.size),
                        .ranks = world.size()};
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  RunConfig config;
  config.device.kind = options.device;
  config.train.precision = Precision::bf16;
  const std::unique_ptr<Queue> queue = start_device(config, options.share, world, stream).queue;
  if constexpr (kHasCuda) {
    if (stream.device == DeviceKind::cuda) report.device = device_name();
  }
  {
    Libraries libraries(stream);
    const std::vector<kernel_testing::KernelCase> cases =
        options.cases.empty() ? self_test_cases(options.size) : options.cases;
    const bool full = options.size == SelfTestSize::full;
    run_part(options, "kernels", report, [&] {
      const auto notify = [&](size_t calls) {
        if (options.progress) options.progress("kernels", calls, cases.size());
      };
      check_kernels(stream, cases, full ? std::vector<int64_t>{0, 3, 16} : std::vector<int64_t>{0}, notify, report);
    });
    run_part(options, "rates", report, [&] {
      libraries.time_candidates(true);  // as in a training run
      measure_rates(stream, options.size, report.device, report);
    });
  }
  run_part(options, "training", report, [&] { check_training(stream, options.size, report); });
  run_part(options, kOfAllRanks, report, [&] {
    if (!all_devices_work(stream, world, report)) return;
    const ParallelLayout layout = make_layout({}, world.size());
    {
      const Groups groups = make_groups(world, layout, 1, {}, stream.device);
      check_communicator(stream, *groups.dp, options.size, report);
      measure_all_reduce(stream, *groups.dp, options.size, report);
    }
    check_groups_at_once(stream, world, options.size, report);
  });
  gather(world, report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace shiftron
