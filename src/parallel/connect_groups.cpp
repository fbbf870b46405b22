// Sizes of NCCL's buffers, and a first operation of each kind.
#include "parallel/connect_groups.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "core/memory.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

// NCCL 2.28, src/init.cc and src/include/device.h: the buffers of its protocols LL and LL128; that of "simple" is
// NCCL_BUFFSIZE.
constexpr int64_t kLatencyBuffers = 8 * 512 * 8 * 16 + 120 * 640 * 8 * 8;
// src/transport/nvls.cc: 8 steps of 128 KiB in either direction.
constexpr int64_t kMulticastBuffer = 2 * 8 * (int64_t{128} << 10);
constexpr int kMulticastChannels = 16, kMulticastRanks = 8, kLeastMulticastRanks = 3;

constexpr const char* kAllReduce = "all_reduce";
constexpr int64_t kLeastBytes = 256, kMostBytes = int64_t{64} << 20;
constexpr int64_t kGrowth = 16;  // from one size to the next: NCCL uses other algorithms for larger ones

// A positive number from the environment, or `otherwise`.
int64_t number_of(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  const int64_t number = text == nullptr ? 0 : std::strtoll(text, nullptr, 0);
  return number > 0 ? number : otherwise;
}

std::array<Communicator*, 6> collective_groups(const Groups& groups) {
  return {groups.world.get(), groups.tp.get(),         groups.cp.get(),
          groups.dp.get(),    groups.kv_replica.get(), groups.tied.get()};
}

// An operation of a group on a tensor with equally many elements for each rank.
struct FirstOperation {
  const char* name;
  bool gathers;  // a rank hands over only its part
  std::function<Work(Stream&, Communicator&, const Tensor&)> start;
};
Tensor own_part(const Communicator& group, const Tensor& whole) {
  const int64_t part = whole.count() / group.size();
  return whole.rows(group.rank() * part, part);
}
const std::vector<FirstOperation>& first_operations() {
  static const std::vector<FirstOperation> all = {
      {kAllReduce, false,
       [](Stream& stream, Communicator& group, const Tensor& tensor) {
         return group.all_reduce(stream, InOut(tensor), Reduction::sum);
       }},
      {"all_gather", true,
       [](Stream& stream, Communicator& group, const Tensor& tensor) {
         return group.all_gather(stream, own_part(group, tensor), tensor);
       }},
      {"reduce_scatter", false,
       [](Stream& stream, Communicator& group, const Tensor& tensor) {
         return group.reduce_scatter(stream, tensor, own_part(group, tensor));
       }},
      {"broadcast", false, [](Stream& stream, Communicator& group, const Tensor& tensor) {
         return group.broadcast(stream, InOut(tensor), 0);
       }}};
  return all;
}

// All operations that any rank does in a step, each with the bytes of the whole tensors of a step, on the rank with the
// most: ranks of a group may plan different amounts.
std::map<std::string, int64_t> traffic_of_all(ControlPlane& world, const Groups& groups,
                                              const std::map<std::string, TrafficCost>& traffic) {
  std::ostringstream own;
  for (const Communicator* group : collective_groups(groups)) {
    for (const FirstOperation& operation : first_operations()) {
      const auto found = group == nullptr ? traffic.end() : traffic.find(group->name() + " " + operation.name);
      if (found == traffic.end()) continue;
      own << found->first << " " << found->second.bytes * (operation.gathers ? group->size() : 1) << "\n";
    }
  }
  std::map<std::string, int64_t> all;
  for (const std::string& text : different_texts(world, own.str())) {
    std::istringstream lines(text);
    std::string group, operation;
    for (int64_t bytes = 0; lines >> group >> operation >> bytes;) {
      int64_t& most = all[group + " " + operation];
      most = std::max(most, bytes);
    }
  }
  return all;
}

}  // namespace

NcclBuffers NcclBuffers::of_environment() {
  NcclBuffers buffers;
  buffers.channels = static_cast<int>(std::min<int64_t>(number_of("NCCL_MAX_CTAS", buffers.channels), 1 << 10));
  buffers.chunk = number_of("NCCL_BUFFSIZE", buffers.chunk);
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  buffers.multicast = multicast == nullptr || std::string(multicast) != "0";
  return buffers;
}

int64_t nccl_memory(NcclUse use, int ranks, bool sums, const NcclBuffers& buffers) {
  if (ranks < 2) return 0;
  const int64_t channels = std::min(most_blocks(use).value_or(buffers.channels), buffers.channels);
  const int64_t connections = use != NcclUse::messages && sums ? 2 : 1;
  int64_t bytes = channels * connections * (kLatencyBuffers + buffers.chunk);
  if (use != NcclUse::messages && buffers.multicast && ranks >= kLeastMulticastRanks)
    bytes += std::min<int64_t>(channels, kMulticastChannels) * std::min(ranks, kMulticastRanks) * kMulticastBuffer;
  return bytes;
}

int64_t nccl_memory(const Groups& groups, const std::map<std::string, TrafficCost>& traffic,
                    const NcclBuffers& buffers) {
  int64_t bytes = 0;
  for (const Communicator* group : collective_groups(groups)) {
    if (group == nullptr) continue;
    const auto uses = [&](const FirstOperation& operation) {
      return traffic.contains(group->name() + " " + operation.name);
    };
    if (std::ranges::none_of(first_operations(), uses)) continue;
    const bool sums = traffic.contains(group->name() + " " + kAllReduce);
    const NcclUse use = group == groups.world.get() ? NcclUse::scalars : NcclUse::sums;
    bytes += nccl_memory(use, group->size(), sums, buffers);
  }
  for (const ChannelEnd& end : groups.channels) {
    bytes += nccl_memory(NcclUse::messages, end.group->size(), false, buffers);
  }
  return bytes;
}

void connect_groups(ControlPlane& world, const Groups& groups, const std::map<std::string, TrafficCost>& traffic,
                    Stream& stream) {
  if (stream.device != DeviceKind::cuda) return;
  const std::map<std::string, int64_t> planned = traffic_of_all(world, groups, traffic);
  Ledger uncounted;
  Stream own = stream;
  own.ledger = &uncounted;
  own.timed = false;
  int64_t largest = 0;
  for (const auto& [name, bytes] : planned) largest = std::max(largest, bytes);
  const int64_t room = std::max(std::min(largest, kMostBytes), int64_t{world.size()} * size_of(DType::float64));
  const Buffer memory(stream.device, room, uncounted, "connections");
  for (Communicator* group : collective_groups(groups)) {
    if (group == nullptr || group->size() == 1) continue;
    const DType dtype = group == groups.world.get() ? DType::float64 : DType::float32;
    const int64_t unit = group->size() * size_of(dtype);
    for (const FirstOperation& operation : first_operations()) {
      const auto found = planned.find(group->name() + " " + operation.name);
      if (found == planned.end()) continue;
      const int64_t most = std::min(found->second, room);
      for (int64_t bytes = std::min(kLeastBytes, most);; bytes = std::min(bytes * kGrowth, most)) {
        const Tensor tensor = memory.tensor(0, dtype, {std::max(bytes / unit, int64_t{1}) * group->size()});
        operation.start(own, *group, tensor).wait_on_host();
        if (bytes >= most) break;
      }
    }
  }
}

}  // namespace shiftron
