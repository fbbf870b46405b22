// Where a rank computes: on its share of the host's processor or on its GPU, as [device] says.
#pragma once

#include <memory>

#include "core/host.h"
#include "core/stream.h"
#include "kernels/kernels.h"
#include "parallel/control_plane.h"
#include "train/run_config.h"

namespace shiftron {

// Makes `stream`, whose ledger stands, run there: on a GPU in the queue that is returned, which outlives its use. Every
// rank of `world` calls it; what fails on one is thrown by all. Of a bf16 run on processors: which products are faster
// in bfloat16 is timed on rank 0 and told to all, since bits depend on it; under train.deterministic=repeat it is what
// the processor has instructions for.
std::unique_ptr<Queue> start_device(const RunConfig& config, const HostShare& share, ControlPlane& world,
                                    Stream& stream);

// A stream of shapes alone, which plans what such a stream would do.
Stream planning_stream(const RunConfig& config, int threads, Ledger& ledger);

// In which large products of such a run are made.
DType product_type(Precision precision, const CpuOptions& cpu);

// The device for a run of `config` that was saved elsewhere: its own, where this build and host have it.
DeviceChoice device_here(DeviceChoice saved);

}  // namespace shiftron
