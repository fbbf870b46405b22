// Times products on a CPU, starts CUDA on a GPU.
#include "train/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "core/has_cuda.h"
#include "core/numa.h"
#include "core/queue_cuda.h"
#include "kernels/choose_products.h"
#include "kernels/processors.h"
#include "kernels/thread_team.h"
#include "parallel/agree.h"
#include "parallel/communicator_nccl_cuda.h"

namespace shiftron {
namespace {

bool is_cuda(const RunConfig& config) {
  return config.device.kind == DeviceChoice::cuda;
}
bool repeats(const RunConfig& config) {
  return config.train.deterministic == Deterministic::repeat;
}

constexpr char kDigit = '0';  // + a ProductsBy

TypicalProduct typical_product(const RunConfig& config) {
  return {.rows = config.train.micro_batch * config.train.sequence_length,
          .in = config.model.hidden,
          .out = 2 * config.model.ffn / config.parallel.tp,
          .head_dim = config.model.head_dim};
}

// The kinds of products that every rank's processor has.
std::vector<ProductsBy> products_of_all_ranks(ControlPlane& world) {
  std::string own;
  for (const ProductsBy by : products_here()) own += static_cast<char>(kDigit + static_cast<int>(by));
  const std::string all = joined_texts(world, own);
  std::vector<ProductsBy> everywhere;
  for (const char digit : own) {
    if (std::ranges::count(all, digit) == world.size()) everywhere.push_back(static_cast<ProductsBy>(digit - kDigit));
  }
  return everywhere;
}

// Results depend on the choice, so only rank 0 times it and sends it to all.
std::string choose_products(const RunConfig& config, ControlPlane& world, CpuOptions& cpu) {
  const std::vector<ProductsBy> among = products_of_all_ranks(world);
  if (repeats(config)) {
    cpu.bfloat16 = untimed_products(among);
    return "";
  }
  FastestProducts fastest;
  std::string choices;
  if (world.rank() == 0) {
    fastest = fastest_products(cpu, among, typical_product(config));
    for (const ProductClass& of : kProductClasses)
      choices += static_cast<char>(kDigit + static_cast<int>(fastest.by.*of.by));
  }
  choices = world.broadcast_text(choices, 0);
  for (size_t i = 0; i < kProductClasses.size(); ++i) {
    cpu.bfloat16.*kProductClasses[i].by = static_cast<ProductsBy>(choices.at(i) - kDigit);
  }
  return world.rank() == 0 ? fastest.text() : "";
}

DevicesOfHosts devices_of_hosts(ControlPlane& world, const std::string& device) {
  std::istringstream lines(joined_texts(world, host_name() + " " + device + "\n"));
  DevicesOfHosts hosts;
  for (std::string host, other; lines >> host >> other;) add_rank(hosts, host, other);
  return hosts;
}

// A rank's place as a line of text: its host, its processors, and its GPU's NUMA node with the processors there.
std::string line_of_place(const std::string& host, const std::vector<int>& processors,
                          const std::optional<NumaPlace>& gpu) {
  return fmt::format("{} {} {} {}\n", host, processors.empty() ? "-" : list_of(processors), gpu ? gpu->node : -1,
                     gpu ? list_of(gpu->processors) : "-");
}

// Moves this rank to the processors next to its GPU if the launcher bound ranks by their numbers alone. Returns a line
// for the log; "" if the rank stays.
std::string bind_near_gpu(ControlPlane& world, const std::string& host, const std::string& bus, CpuOptions& cpu) {
  const std::vector<int> own = processors_of_process();
  std::istringstream lines(joined_texts(world, line_of_place(host, own, numa_place(bus))));
  std::vector<PlacedRank> ranks;  // of this host
  size_t here = 0;
  std::string of, processors, near;
  for (int node = 0, rank = 0; lines >> of >> processors >> node >> near; ++rank) {
    if (rank == world.rank()) here = ranks.size();
    if (of != host) continue;
    PlacedRank& one = ranks.emplace_back(PlacedRank{processors_in(processors), {}});
    if (node >= 0) one.device = NumaPlace{node, processors_in(near)};
  }
  const std::vector<int> taken = processors_near_device(ranks, here);
  if (taken.empty() || !bind_process(taken)) return "";
  cpu.threads = std::min(cpu.threads, static_cast<int>(taken.size()));
  return fmt::format("bound to processors {} instead of {}: they are on NUMA node {}, next to this rank's GPU {}",
                     list_of(taken), list_of(own), ranks[here].device->node, bus);
}

}  // namespace

void add_rank(DevicesOfHosts& hosts, const std::string& host, const std::string& device) {
  ++hosts[host].ranks;
  hosts[host].devices.insert(device);
}

std::string HostDevices::text() const {
  return fmt::format("{} ranks share {} GPU{}", ranks, devices.size(), devices.size() == 1 ? "" : "s");
}

std::string sharing_warning(const DevicesOfHosts& hosts) {
  std::string shared;
  for (const auto& [host, of] : hosts) {
    if (of.shares()) shared += fmt::format("{}{} ({})", shared.empty() ? "" : ", ", host, of.text());
  }
  if (shared.empty()) return "";
  return "more ranks than GPUs on " + shared +
         ": these ranks exchange data through sockets, which is slow; start one rank per GPU, or check nvidia-smi on "
         "these hosts";
}

bool chooses_products(const RunConfig& config) {
  return config.train.precision == Precision::bf16 && !is_cuda(config);
}

std::string restore_products(const Bfloat16Products& saved, ControlPlane& world, CpuOptions& cpu) {
  const std::vector<ProductsBy> here = products_of_all_ranks(world);
  std::string replaced;
  for (const ProductClass& of : kProductClasses) {
    const ProductsBy was = saved.*of.by;
    ProductsBy& now = cpu.bfloat16.*of.by;
    if (std::ranges::find(here, was) != here.end()) {
      now = was;
    } else {
      replaced +=
          fmt::format("{}{} by {}, now by {}", replaced.empty() ? "" : "; ", of.name, name_of(was), name_of(now));
    }
  }
  return replaced;
}

StartedDevice open_device(const RunConfig& config, const HostShare& share, Stream& stream) {
  stream.cpu.threads = share.threads;
  stream.deterministic = repeats(config);
  StartedDevice started;
  if (!is_cuda(config)) {
    start_threads(share.threads);
    return started;
  }
  CHECK(kHasCuda, "this build has no CUDA");
  if constexpr (kHasCuda) {
    started.queue = start_cuda(stream, share);
    started.identity = device_identity();
  }
  return started;
}

void join_devices(const RunConfig& config, ControlPlane& world, Stream& stream, StartedDevice& started) {
  if (chooses_products(config)) started.products = choose_products(config, world, stream.cpu);
  if constexpr (kHasCuda) {
    if (!is_cuda(config)) return;
    const DeviceIdentity& device = started.identity;
    const std::string host = host_name() + " ";
    started.ranks_of_memory = find_matching_ranks(world, host + device.uuid).count;
    share_device(find_matching_ranks(world, host + device.bus).place);
    started.hosts = devices_of_hosts(world, device.uuid);
    started.binding = bind_near_gpu(world, host_name(), device.bus, stream.cpu);
    if (repeats(config)) repeat_sums();
  }
}

StartedDevice start_device(const RunConfig& config, const HostShare& share, ControlPlane& world, Stream& stream) {
  StartedDevice started;
  run_on_all_ranks(world, [&] { started = open_device(config, share, stream); });
  join_devices(config, world, stream, started);
  return started;
}

Stream planning_stream(const RunConfig& config, int threads, Ledger& ledger) {
  return {.device = DeviceKind::meta,
          .ledger = &ledger,
          .cpu = {.threads = threads},
          .deterministic = repeats(config),
          .planned = is_cuda(config) ? DeviceKind::cuda : DeviceKind::cpu};
}

DType product_type(Precision precision, const CpuOptions& cpu) {
  return precision == Precision::bf16 && cpu.bfloat16.forward != ProductsBy::float32 ? DType::bfloat16 : DType::float32;
}

DeviceChoice available_device(DeviceChoice saved) {
  bool usable = false;
  if constexpr (kHasCuda) usable = cuda_devices() > 0;
  return usable ? saved : DeviceChoice::cpu;
}

}  // namespace shiftron
