// Memory and processors that a host, and the control groups of Slurm and containers, leave to a process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shiftron {

struct HostMemoryInfo {
  int64_t available = 0, total = 0;  // bytes
};

// Of the host or of the tightest control group, whichever leaves less; cached files, and swap that this process may
// use, count as available. Nothing if the system does not report it. The system's files are read below `root`.
std::optional<HostMemoryInfo> host_memory_info(const std::string& root = "");

// Processor time that the tightest control group gives its processes, this one among them, as a number of processors,
// rounded up (cpu.max, cpu.cfs_quota_us); 0 if none limits it.
int processor_quota(const std::string& root = "");

// Raises this process's limit of open files to its hard limit, at most a million: programs that it starts may loop over
// all descriptors. The soft limit, often 1024, is for programs that call select().
void raise_open_files();

// Whether the system would now give this process so many bytes of host memory within its limits; none are touched.
bool has_memory(int64_t bytes);

}  // namespace shiftron
