// What communicators of the host count: known numbers, on meta the same as when bytes move. The whole suite.
#pragma once

#include "parallel/stream_conformance.h"

namespace shiftron::conformance {

// Makes the same calls on any world, on cpu or meta.
inline void make_calls(HostCommunicator& world, Rank& rank) {
  std::vector<std::vector<std::byte>> memory;
  const auto make = [&](DType dtype, int64_t count) {
    if (rank.stream.device == DeviceKind::meta) return Tensor(nullptr, dtype, Shape{count}, DeviceKind::meta);
    memory.emplace_back(static_cast<size_t>(count * size_of(dtype)));
    return Tensor(memory.back().data(), dtype, Shape{count}, DeviceKind::cpu);
  };
  std::vector<int> neighbours = {world.rank() & ~1, world.rank() | 1};
  if (neighbours[1] >= world.size()) neighbours.pop_back();
  const std::unique_ptr<HostCommunicator> pair = world.split(neighbours, "pair");
  Stream& stream = rank.stream;
  for (HostCommunicator* group : {&world, pair.get()}) {
    const int size = group->size();
    for (const int64_t count : {0, 5, 4000, 600000}) {
      group->all_reduce(stream, InOut(make(DType::float32, count)), Reduction::sum).wait_on_host();
      group->all_reduce(stream, InOut(make(DType::bfloat16, count)), Reduction::max).wait_on_host();
      group->all_gather(stream, make(DType::int64, count), make(DType::int64, count * size)).wait_on_host();
      group->reduce_scatter(stream, make(DType::float64, count * size), make(DType::float64, count)).wait_on_host();
      group->all_to_all(stream, make(DType::uint8, count * size), make(DType::uint8, count * size)).wait_on_host();
      group->broadcast(stream, InOut(make(DType::int32, count)), size - 1).wait_on_host();
      if (size > 1) {
        group->send(stream, make(DType::float32, count), (group->rank() + 1) % size).wait_on_host();
        group->recv(stream, make(DType::float32, count), (group->rank() + size - 1) % size).wait_on_host();
      }
      memory.clear();
    }
    group->barrier();
    group->broadcast_text("not counted", 0);
    group->gather_text("not counted", 0);
  }
}

// Traffic and staging of this world, by hand and against meta.
inline void check_traffic(HostCommunicator& world, Queue* queue = nullptr) {
  Rank real(DeviceKind::cpu, queue);
  make_calls(*world.split(all_ranks(world), "world"), real);  // one that has no staging yet
  Rank planned(DeviceKind::meta);
  const std::unique_ptr<HostCommunicator> meta = make_meta_world(world.rank(), world.size());
  make_calls(*meta, planned);
  CHECK(real.ledger.traffic() == planned.ledger.traffic(), "traffic differs from that on meta");
  CHECK(real.ledger.memory() == planned.ledger.memory(), "staging differs from that on meta");
  if (world.size() == 1) {
    CHECK(real.ledger.traffic().empty(), "a group of one has no traffic");
    return;
  }
  const int64_t total = 5 + 4000 + 600000;
  const auto expect = [&](const char* key, int64_t calls, int64_t bytes) {
    const TrafficCost found = real.ledger.traffic().at(key);
    CHECK(found == (TrafficCost{calls, bytes}), key, ": ", found.calls, " calls, ", found.bytes, " bytes");
  };
  expect("world all_reduce", 8, total * (4 + 2));
  expect("world all_gather", 4, total * 8);
  expect("world reduce_scatter", 4, total * 8 * world.size());
  expect("world all_to_all", 4, total * world.size());
  expect("world broadcast", 4, world.rank() == world.size() - 1 ? total * 4 : 0);
  expect("world send", 4, total * 4);
  expect("world recv", 4, 0);
  CHECK(queue != nullptr || (real.ledger.times.communication > 0 && real.ledger.times.wait > 0),
        "no seconds were counted");
}

// A world of the host, which forms groups itself.
inline Tested of_host(HostCommunicator& world, HostCommunicator& control) {
  return {.world = world, .control = control, .split = [&](const std::vector<int>& members, const std::string& name) {
            return world.split(members, name);
          }};
}

// What every communicator does; groups of up to `limit` ranks.
inline void check_all(const Tested& tested, int limit) {
  const Group world = whole(tested);
  check_refusals(world);
  check_operations(world);
  check_special_values(world);
  check_order(world, Reader::host);
  check_order(world, Reader::stream);
  check_groups(tested, limit);
  check_meshes(tested);
  check_two_at_once(tested);
}

// The whole suite for communicators of the host.
inline void check_host(HostCommunicator& world, int limit) {
  const std::unique_ptr<HostCommunicator> control = world.split(all_ranks(world), "control");
  const Tested tested = of_host(world, *control);
  check_all(tested, limit);
  check_large(whole(tested));
  check_sends_ahead(whole(tested));
  check_text(world);
  check_split(world);
  check_traffic(world);
}

// Streams with queues; less of everything, as each wait for a peer takes turns.
inline void check_host_on_queues(HostCommunicator& world, Queue& queue, int limit) {
  const std::unique_ptr<HostCommunicator> control = world.split(all_ranks(world), "control");
  Tested tested = of_host(world, *control);
  tested.queue = &queue;
  tested.counts = {0, 1, 3001};
  check_all(tested, limit);
  check_sends_ahead(whole(tested));
  check_streams(tested);
  check_channels(tested);
  check_traffic(world, &queue);
}

}  // namespace shiftron::conformance
