// Refuses a run that does not fit, and lists what other values of its keys would need.
#include "train/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "config/validate.h"
#include "core/check.h"
#include "core/has_cuda.h"
#include "core/host.h"
#include "core/host_limits.h"
#include "core/memory_cuda.h"
#include "parallel/agree.h"
#include "parallel/communicator_nccl_cuda.h"
#include "parallel/connect_groups.h"
#include "run/run_report.h"
#include "train/rank_kinds.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.3f} GB", static_cast<double>(bytes) / 1e9);
}

// Another value of one key.
struct Change {
  std::string text;
  RunConfig config;
};

std::vector<Change> changes_of(const RunConfig& config) {
  std::vector<Change> changes;
  const auto add = [&](const auto& change) {
    RunConfig changed = config;
    const std::string text = change(changed);
    changes.push_back({text, changed});
  };
  for (int64_t rows = config.train.micro_batch; rows % 2 == 0;) {
    rows /= 2;
    add([&](RunConfig& to) { return fmt::format("train.micro_batch={}", to.train.micro_batch = rows); });
  }
  for (const RecomputeKind kind : {RecomputeKind::selective, RecomputeKind::full}) {
    add([&](RunConfig& to) {
      to.parallel.recompute = kind;
      return fmt::format("parallel.recompute={}", names_of(kind)[static_cast<size_t>(kind)]);
    });
  }
  add([&](RunConfig& to) { return fmt::format("parallel.zero={}", to.parallel.zero = 1); });
  add([&](RunConfig& to) { return fmt::format("parallel.tp={}", to.parallel.tp *= 2); });
  add([&](RunConfig& to) { return fmt::format("parallel.pp={}", to.parallel.pp *= 2); });
  if (config.parallel.pipeline != PipelineKind::one_forward_one_backward) {
    add([&](RunConfig& to) {
      to.parallel.pipeline = PipelineKind::one_forward_one_backward;
      const std::string text = "parallel.pipeline=" + to_string(to.parallel.pipeline);
      return std::exchange(to.parallel.chunks, 1) == 1 ? text : text + " parallel.chunks=1";
    });
  }
  return changes;
}

// Bytes that the rank would need; unset if that run is not valid.
std::optional<int64_t> bytes_of(const RunConfig& config, int rank, int ranks, int threads) {
  if (!find_faults(config, ranks, Use::dry_run).empty()) return {};
  Ledger planned;
  plan_memory(config, make_layout(config.parallel, ranks), rank, threads, planned);
  return planned.memory_total();
}

// Bytes that this rank needs with the change. If the change gives ranks other parts of the model: of the rank that
// needs most.
std::optional<int64_t> bytes_after(const RunConfig& config, const Change& change, int rank, int ranks, int threads) {
  const ParallelSection &before = config.parallel, &now = change.config.parallel;
  if (before.tp == now.tp && before.pp == now.pp && before.pipeline == now.pipeline)
    return bytes_of(change.config, rank, ranks, threads);
  if (!find_faults(change.config, ranks, Use::dry_run).empty()) return {};
  int64_t most = 0;
  for (const RankKind& kind : plan_kinds(change.config, make_layout(now, ranks), threads))
    most = std::max(most, kind.planned.memory_total());
  return most;
}

// Whether the plan would not fit even if nobody else used memory there.
bool exceeds_total(const Ledger& planned, const RankMemory& room) {
  return planned.memory_total() + room.planned_by_others > room.total;
}

std::string refusal(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, const Ledger& planned,
                    const RankMemory& room) {
  const int64_t needed = planned.memory_total();
  const int64_t benchmark_bytes = needed - bytes_of(config, rank, layout.ranks(), threads).value_or(needed);
  const Coordinates at = layout.coordinates(rank);
  const bool on_gpu = config.device.kind == DeviceChoice::cuda;
  std::string text = fmt::format(
      "not enough memory on the {} of rank {} on {} (tp {}, pp {}, dp {}): {} planned{}, {} of {} free, {} missing{}. "
      "The plan:\n{}",
      on_gpu ? "device" : "host", rank, host_name(), at.tp, at.pp, at.dp, gigabytes(needed),
      room.ranks == 1
          ? ""
          : fmt::format(", {} more for its other {} ranks", gigabytes(room.planned_by_others), room.ranks - 1),
      gigabytes(room.available), gigabytes(room.total), gigabytes(needed + room.planned_by_others - room.available),
      exceeds_total(planned, room)
          ? ""
          : ", which other processes use now: start again once they have freed it, or reduce the plan",
      memory_table(planned));
  std::string less;
  for (const Change& change : changes_of(config)) {
    const std::optional<int64_t> training = bytes_after(config, change, rank, layout.ranks(), threads);
    if (!training || *training + benchmark_bytes >= needed) continue;
    const int64_t bytes = *training + benchmark_bytes;
    less += fmt::format("  {:<30} {:>12}{}\n", change.text, gigabytes(bytes),
                        bytes * room.ranks > room.available ? " *" : "");
  }
  if (!less.empty()) text += "With the same number of ranks, these would need less (*: still too much):\n" + less;
  return text + fmt::format(
                    "With more {}, a larger parallel.tp or parallel.pp also helps. {}`shiftron train --dry-run` shows "
                    "the memory of other plans",
                    on_gpu ? "ranks" : "hosts",
                    on_gpu ? fmt::format("The plan includes estimates: device.reserve ({} MiB) for CUDA and its "
                                         "libraries, and the memory of NCCL. ",
                                         config.device.reserve)
                           : "");
}

// Room on this rank's host, before any of its ranks has allocated its plan; practically unlimited if not known.
RankMemory host_memory(ControlPlane& world, int64_t planned) {
  constexpr HostMemoryInfo kUnknown{.available = int64_t{1} << 60, .total = int64_t{1} << 60};
  const HostMemoryInfo host = host_memory_info().value_or(kUnknown);
  RankMemory room{.available = host.available, .total = host.total, .planned_by_others = -planned, .ranks = 0};
  std::error_code ignored;  // containers may have the name of their host
  const std::string here = host_name() + std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::istringstream ranks(joined_texts(world, fmt::format("{} {}\n", here, planned)));
  std::string name;
  for (int64_t bytes = 0; ranks >> name >> bytes;) {
    if (name != here) continue;
    room.planned_by_others += bytes;
    ++room.ranks;
  }
  return room;
}

}  // namespace

std::string memory_table(const Ledger& planned) {
  std::string table;
  for (const auto& [category, bytes] : planned.memory()) {
    table += fmt::format("  {:<16} {:>12.3f} MB\n", category, static_cast<double>(bytes) / 1e6);
  }
  return table;
}

void require_memory_for_plan(ControlPlane& world, const RunConfig& config, const ParallelLayout& layout, int threads,
                             const Ledger& planned, const RankMemory& room) {
  const int64_t missing = planned.memory_total() + room.planned_by_others - room.available;
  int lacking = -1;  // the rank that lacks most; ranks whose plan exceeds the total come first
  std::pair<bool, int64_t> most = {false, 0};
  const std::vector<std::string> all =
      world.gather_text(fmt::format("{:d} {}", exceeds_total(planned, room), missing), 0);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::pair<bool, int64_t> lack;
    std::istringstream(all[rank]) >> lack.first >> lack.second;
    if (lack.second <= 0 || lack <= most) continue;
    most = lack;
    lacking = static_cast<int>(rank);
  }
  lacking = std::stoi(world.broadcast_text(std::to_string(lacking), 0));
  if (lacking < 0) return;
  std::string text;
  if (world.rank() == lacking) text = refusal(config, layout, lacking, threads, planned, room);
  text = world.broadcast_text(text, lacking);
  run_on_first_rank(world, [&] { throw Error(text, most.first ? ExitCode::bad_input : ExitCode::crash); });
}

int64_t require_device_memory(ControlPlane& world, const RunConfig& config, const ParallelLayout& layout,
                              int ranks_of_memory, const Stream& stream, const Ledger& planned, Log& log) {
  if (stream.device == DeviceKind::cpu) {
    require_memory_for_plan(world, config, layout, stream.cpu.threads, planned,
                            host_memory(world, planned.memory_total()));
  }
  if constexpr (kHasCuda) {
    if (stream.device != DeviceKind::cuda) return 0;
    const cuda::DeviceMemoryInfo device = cuda::device_memory();
    const RankMemory room{.available = device.available / ranks_of_memory, .total = device.total / ranks_of_memory};
    log.info(fmt::format("memory of this rank's device{}: {} bytes, {} free, {} planned:\n{}",
                         ranks_of_memory > 1 ? fmt::format(", shared by {} ranks", ranks_of_memory) : "",
                         thousands(device.total), thousands(room.available), thousands(planned.memory_total()),
                         memory_table(planned)));
    require_memory_for_plan(world, config, layout, stream.cpu.threads, planned, room);
    return room.available;
  }
  return 0;
}

void require_memory_beyond_groups(ControlPlane& world, const RunConfig& config, int ranks_of_memory, int64_t free,
                                  const Stream& stream, const Ledger& planned, Log& log) {
  if constexpr (kHasCuda) {
    if (stream.device != DeviceKind::cuda) return;
    world.barrier();  // all ranks that share the device have made their groups
    const int64_t available = cuda::device_memory().available / ranks_of_memory;
    const int64_t taken = std::max<int64_t>(free - available, 0);
    const auto planned_of_nccl = planned.memory().find(kNcclMemory);
    const int64_t expected = planned_of_nccl == planned.memory().end() ? 0 : planned_of_nccl->second;
    log.info(fmt::format("communicators use {} bytes of this rank's device ({} expected); {} are free",
                         thousands(taken), thousands(expected), thousands(available)));
    const int64_t reserve = config.device.reserve << 20;
    const int64_t missing = planned.memory_total() - expected - reserve - available;
    run_on_all_ranks(world, [&] {
      if (missing <= 0) return;
      const char* const connects = std::getenv("NCCL_RUNTIME_CONNECT");
      throw_bad_input("not enough device memory next to NCCL on ", host_name(), ": its communicators use ",
                      gigabytes(taken), ", ", gigabytes(expected), " expected, device.reserve leaves ",
                      gigabytes(reserve), " for them and CUDA, ", gigabytes(missing), " missing; ",
                      connects != nullptr && connects == std::string("0")
                          ? "unset NCCL_RUNTIME_CONNECT, whose value 0 makes NCCL reserve memory that no step uses; or "
                          : "",
                      "set device.reserve=", (reserve + missing) / (1 << 20) + 1,
                      " or more, so that the run prints at its start which settings need less memory; or ",
                      kLessOfNccl);
    });
  }
}

}  // namespace shiftron
