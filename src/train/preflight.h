// A look at the hosts of a job before a run is given to them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/host.h"
#include "parallel/host_communicator.h"
#include "train/gpu_facts.h"
#include "train/preflight_device.h"
#include "train/run_config.h"

namespace shiftron {

// What one rank found. Host-wide facts are those of the first rank of a host.
struct RankReport {
  std::string host{};
  int local_rank = 0;
  std::map<std::string, std::string> files{};  // the program and its libraries by name: hashes of their bytes
  double clock = 0;                            // seconds since 1970, taken by all at once
  std::string disk_fault{};                    // of writing into the run's directory; "": none
  std::string data_fault{};                    // of opening the data; "": none
  std::string device{};                        // which GPU it computes on; "" on a CPU
  GpuFacts gpu{};                              // what nvidia-smi says of that
  std::string device_fault{};                  // why that does not start or compute; "": it does
  int64_t wrong_products = 0;                  // elements of a matrix product that are not what integers give
  double operations = 0;                       // of such products in a second
};

struct HostFault {
  std::string host;
  std::string what;
};

constexpr double kMostClockSkew = 5;        // seconds from the median of all hosts
constexpr double kLeastShareOfSpeed = 0.5;  // of the median rank's products, below which a host is told of

// What is wrong with which hosts: another program or library than most have, a clock apart, a directory that cannot be
// written or is not that of the others, data that cannot be opened, a GPU that does not work, a wrong product. Fewer GPUs
// than ranks are a fault where another host has one for each, and so are errors of a GPU's memory. `warnings`: much
// slower than most, GPUs that all share, GPUs with other values than most have.
std::vector<HostFault> judge(const std::vector<RankReport>& reports, std::vector<HostFault>& warnings);

// What is wrong with the run's directory on a host that does not see these of the probes that so many hosts have
// written there; "" where nothing is, or where the hosts that wrote them are the odd ones, which say so themselves.
std::string fault_of_unseen(const std::string& directory, size_t written, const std::vector<std::string>& unseen);

// For how many steps the disk must have room beside the `there` that lie on it.
struct RoomForSteps {
  int64_t least = 1;  // and the older ones of those there go: the newest one stays until the next is written
  int64_t all = 1;    // and checkpoint.keep of them stay
};
RoomForSteps steps_in_need_of_room(const RunConfig& config, int64_t there);

// Throws Error(bad_input) where saves would fail. Returns a warning where fewer steps than checkpoint.keep have room,
// else "".
std::string look_for_room(const RunConfig& config);

struct PreflightResult {  // hosts on rank 0 alone
  std::vector<HostFault> faults{}, warnings{};
  double seconds = 0;
};

// Every rank calls it. config.output.directory is made where it is missing; nothing stays there. `begin` is told each
// part, which a rank that hangs stays in. A device that fails is its host's fault; then no groups are summed over.
// Throws Error(bad_input) where the disk has no room to go on saving (that it is less than checkpoint.keep takes is a
// warning), where no rank can open the data, or where ranks have different data.
PreflightResult run_preflight(const RunConfig& config, const HostShare& share, HostCommunicator& world,
                              const BeginPart& begin);

}  // namespace shiftron
