// `shiftron self-test`.
#include "evaluate/self_test.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/version.h"
#include "core/check.h"
#include "core/has_cuda.h"
#include "core/host.h"
#include "core/progress.h"
#include "parallel/agree.h"
#include "parallel/watchdog.h"

namespace shiftron::cli {
namespace {

constexpr double kMostThreads = 1'000'000;

std::vector<CommandOption> self_test_options() {
  CommandOption device = text_option("device", "cpu|cuda", "device to test", "cpu");
  device.choices = {"cpu", "cuda"};
  CommandOption size =
      text_option("size", "small|full", "small: only awkward shapes, for machines without a GPU", "full");
  size.choices = {"small", "full"};
  return {device, size,
          integer_option("threads",
                         "threads per rank; 0 = the processors it is bound to, divided by the ranks that share them",
                         between(0, kMostThreads), "0"),
          integer_option("deadline", "maximum seconds for each part of the test", between(1, 1'000'000), "600"),
          json_flag()};
}

int run_self_test_command(const CommandLine& line) {
  ignore_write_signals();
  if (!kHasCuda && line.text("device") == "cuda") {
    throw_bad_input(
        "this build does not support CUDA; to build one that does: cmake --preset cuda && cmake --build --preset cuda "
        "(docs/gpu.md)");
  }
  Watchdog watchdog([](const Watchdog::Expiry& expiry) {
    std::cerr << fmt::format(
        "shiftron: self-test: {} on {} takes longer than {:.0f} s (--{}): a device or a rank hangs\n", expiry.section,
        host_name(), expiry.seconds, expiry.key);
  });
  MpiSession session;
  const std::unique_ptr<HostCommunicator> world = session.world();
  require_same_start(*world, "self-test", line);
  const Deadline deadline{.seconds = static_cast<double>(line.integer("deadline")), .key = "deadline"};
  Watchdog::Section section;
  std::optional<Progress> progress;
  SelfTestOptions options{.device = from_string<DeviceChoice>(line.text("device")).value(),
                          .size = from_string<SelfTestSize>(line.text("size")).value(),
                          .share = share_of(session, static_cast<int>(line.integer("threads"))),
                          .libraries = backends_text()};
  warn_of_binding(session, "self-test", options.device, static_cast<int>(line.integer("threads")));
  options.begin = [&](const std::string& part) {
    progress.reset();
    section = watchdog.enter(fmt::format("rank {}: {}", world->rank(), part), deadline);
    if (world->rank() == 0) std::cerr << "self-test: " << part << " …\n";
  };
  options.progress = [&](const std::string& part, size_t done, size_t of) {
    section.renew();
    if (world->rank() != 0) return;
    if (!progress) progress.emplace("self-test: " + part, of, "calls");
    progress->update(done);
  };
  const SelfTestReport report = run_self_test(options, *world);
  progress.reset();
  run_on_first_rank(*world, [&] {
    if (line.has("json")) {
      nlohmann::ordered_json json = {{"version", version_text()}};
      json.update(to_json(report));
      print_json(json);
    } else {
      std::cout << to_text(report)
                << fmt::format("\n{} in {:.0f} s\n", report.failures().empty() ? "passed" : "FAILED", report.seconds);
    }
    if (const std::string failure = verdict(report); !failure.empty()) throw Error(failure, ExitCode::crash);
  });
  return 0;
}

}  // namespace

std::vector<Command> self_test_commands() {
  return {{"self-test", "",
           "checks that this machine's device computes correctly, and how fast: kernels, training, communication",
           "[--device cpu|cuda] [--json]", self_test_options(), false, run_self_test_command,
           "shiftron self-test --device cuda"}};
}

}  // namespace shiftron::cli
