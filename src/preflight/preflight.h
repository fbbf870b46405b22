// Checks the hosts of a job before a run starts on them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/host.h"
#include "parallel/host_communicator.h"
#include "preflight/gpu_facts.h"
#include "preflight/preflight_device.h"

namespace shiftron {

// What one rank found. Host-wide facts are those of the first rank of a host.
struct RankReport {
  std::string host{};
  int local_rank = 0;
  std::map<std::string, std::string> files{};  // the program and its libraries by name: hashes of their bytes
  double clock = 0;                            // seconds since 1970, taken by all ranks at once
  std::string disk_fault{};                    // of writing into the run's directory; "": none
  std::string data_fault{};                    // of opening the data; "": none
  std::string device{};                        // which GPU it computes on; "" on a CPU
  GpuFacts gpu{};                              // what nvidia-smi reports about it
  std::string device_fault{};                  // why it does not start or compute; "": it does
  int64_t wrong_products = 0;                  // elements of a matrix product that differ from the exact integers
  double operations = 0;                       // per second, of such products
};

struct HostFault {
  std::string host;
  std::string what;
};

constexpr double kMostClockSkew = 5;        // seconds from the median of all hosts
constexpr double kLeastShareOfSpeed = 0.5;  // of the median rank's speed; slower hosts are reported

// Which hosts have which faults: a program or library that differs from most, a wrong clock, a directory that cannot be
// written or is not the others' directory, data that cannot be opened, a GPU that does not work or has memory errors, a
// wrong product. Fewer GPUs than ranks are a fault if another host has one for each. `warnings`: much slower than most;
// fewer GPUs than ranks on every host; GPU values that differ from most.
std::vector<HostFault> judge(const std::vector<RankReport>& reports, std::vector<HostFault>& warnings);

// What is wrong with the run's directory on a host that does not see `unseen` of the `written` probes, one from each
// host that could write there. "" if nothing is, or if the hosts that wrote the unseen probes are at fault; these
// report it themselves.
std::string shared_directory_fault(const std::string& directory, size_t written,
                                   const std::vector<std::string>& unseen);

// For how many steps the disk needs room in addition to the `there` that it holds.
struct DiskSpaceForSteps {
  int64_t least = 1;  // if older steps are removed; the newest one stays until the next is written
  int64_t all = 1;    // if checkpoint.keep of them stay
};
DiskSpaceForSteps steps_needing_space(const RunConfig& config, int64_t there);

// Throws Error(bad_input) if saves would fail. Returns a warning if there is room for fewer steps than checkpoint.keep,
// otherwise "".
std::string check_disk_space(const RunConfig& config);

struct PreflightResult {  // faults and warnings on rank 0 only
  std::vector<HostFault> faults{}, warnings{};
  double seconds = 0;
};

// Every rank calls it. Creates config.output.directory if it is missing, and leaves nothing there. Calls `begin` for
// each part, so that a hang can be attributed to one. A device that fails is a fault of its host; then no sums over
// groups are made. Throws Error(bad_input) if the disk has no room for saves (less than checkpoint.keep needs is only a
// warning), if no rank can open the data, or if ranks have different data.
PreflightResult run_preflight(const RunConfig& config, const HostShare& share, HostCommunicator& world,
                              const BeginPart& begin);

}  // namespace shiftron
