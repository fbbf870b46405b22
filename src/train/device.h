// Where a rank computes: on its share of the host's processor or on its GPU, as [device] says.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/host.h"
#include "core/queue_cuda.h"
#include "core/stream.h"
#include "kernels/kernels.h"
#include "parallel/control_plane.h"
#include "train/run_config.h"

namespace shiftron {

// The ranks of a host and their GPUs.
struct HostDevices {
  int ranks = 0;
  std::set<std::string> devices{};
  bool shares() const { return std::ssize(devices) < ranks; }  // ranks have to
  std::string text() const;                                    // "8 ranks share 7 GPUs"
};
using DevicesOfHosts = std::map<std::string, HostDevices>;
void add_rank(DevicesOfHosts& hosts, const std::string& host, const std::string& device);
// The hosts with more ranks than GPUs, a line for people; "" where there are none.
std::string sharing_warning(const DevicesOfHosts& hosts);

struct StartedDevice {
  std::unique_ptr<Queue> queue{};  // null on a CPU
  DeviceIdentity identity{};       // empty on a CPU
  std::string products{};          // what was timed, for people; "" where nothing was, and on ranks but 0
  std::string binding{};           // to which processors the rank has moved, for people; "" where it stays
  int ranks_of_memory = 1;         // how many ranks have a part of this GPU's memory each
  DevicesOfHosts hosts{};          // of all ranks; empty on CPUs
};
// Makes `stream`, whose ledger stands, run there: on a GPU in the queue that is returned, which outlives its use. Every
// rank of `world` calls it; what fails on one is thrown by all. Of a bf16 run on processors: what multiplies fastest,
// of what all of them have, is timed on rank 0 and told to all, since bits depend on it; under
// train.deterministic=repeat nothing is timed.
StartedDevice start_device(const RunConfig& config, const HostShare& share, ControlPlane& world, Stream& stream);

// Its halves: what this rank does alone, and, where that went well on all ranks, what they do together.
StartedDevice open_device(const RunConfig& config, const HostShare& share, Stream& stream);
void join_devices(const RunConfig& config, ControlPlane& world, Stream& stream, StartedDevice& started);

// Whether a run has such a choice: in bf16 on processors.
bool chooses_products(const RunConfig& config);

// Takes what a checkpoint says of products, as far as every rank's processor has it; returns what was replaced by what,
// for people. Every rank of `world` calls it.
std::string restore_products(const Bfloat16Products& saved, ControlPlane& world, CpuOptions& cpu);

// A stream of shapes alone, which plans what such a stream would do.
Stream planning_stream(const RunConfig& config, int threads, Ledger& ledger);

// In which large products of such a run are made.
DType product_type(Precision precision, const CpuOptions& cpu);

// The device for a run of `config` that was saved elsewhere: its own, where this build and host have it.
DeviceChoice device_here(DeviceChoice saved);

}  // namespace shiftron
