// Where a rank computes: on its share of the host's processor or on its GPU, as [device] says.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "config/run_config.h"
#include "core/host.h"
#include "core/queue_cuda.h"
#include "core/stream.h"
#include "kernels/kernels.h"
#include "parallel/control_plane.h"

namespace shiftron {

// The ranks of a host and their GPUs.
struct HostDevices {
  int ranks = 0;
  std::set<std::string> devices{};
  bool shares() const { return std::ssize(devices) < ranks; }  // some ranks share a GPU
  std::string text() const;                                    // "8 ranks share 7 GPUs"
};
using DevicesOfHosts = std::map<std::string, HostDevices>;
void add_rank(DevicesOfHosts& hosts, const std::string& host, const std::string& device);
// One line for the user that names the hosts with more ranks than GPUs; "" if there are none.
std::string sharing_warning(const DevicesOfHosts& hosts);

struct StartedDevice {
  std::unique_ptr<Queue> queue{};  // null on a CPU
  DeviceIdentity identity{};       // empty on a CPU
  std::string products{};          // for the log: what was timed; "" if nothing was, and on ranks other than 0
  std::string binding{};           // for the log: the processors to which the rank has moved; "" if it stays
  int ranks_of_memory = 1;         // how many ranks share this GPU's memory
  DevicesOfHosts hosts{};          // of all ranks; empty on CPUs
};
// Makes `stream`, which already has its ledger, run on the configured device: on a GPU in the returned queue, which
// must outlive its use. Every rank of `world` calls it; if it fails on one rank, all of them throw. In a bf16 run on
// CPUs, rank 0 times the kinds of matrix products that all ranks' processors have, and all ranks use the fastest,
// because results depend on the choice. With train.deterministic=repeat nothing is timed.
StartedDevice start_device(const RunConfig& config, const HostShare& share, ControlPlane& world, Stream& stream);

// The halves of start_device(): what this rank does alone, and what all ranks do together once that has succeeded on
// all of them.
StartedDevice open_device(const RunConfig& config, const HostShare& share, Stream& stream);
void join_devices(const RunConfig& config, ControlPlane& world, Stream& stream, StartedDevice& started);

// Whether a run chooses how to compute products: in bf16 on CPUs.
bool chooses_products(const RunConfig& config);

// Adopts a checkpoint's choice of products, as far as every rank's processor has them. Returns, for the log, which ones
// were replaced by which. Every rank of `world` calls it.
std::string restore_products(const Bfloat16Products& saved, ControlPlane& world, CpuOptions& cpu);

// A stream on meta (shapes only) that plans what a stream of such a run would do.
Stream planning_stream(const RunConfig& config, int threads, Ledger& ledger);

// The type in which large products of such a run are computed.
DType product_type(Precision precision, const CpuOptions& cpu);

// The device for a run that was saved elsewhere: `saved` if this build and host have it, otherwise the CPU.
DeviceChoice available_device(DeviceChoice saved);

}  // namespace shiftron
