// What a host, and the control groups in which Slurm and containers hold a process, leave it of memory and processors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shiftron {

struct HostRoom {
  int64_t available = 0, total = 0;  // bytes
};

// Of the host or of the tightest control group, whichever leaves less; files that the system keeps in memory, and swap
// that this process may take, count as available. Nothing where the system does not tell. Texts of the system lie under
// `root`.
std::optional<HostRoom> host_room(const std::string& root = "");

// Processors' time that the tightest control group gives this process and those beside it there, rounded up (cpu.max,
// cpu.cfs_quota_us); 0 where none limits it.
int processor_quota(const std::string& root = "");

// Lets this process open as many files as its hard limit allows, up to a million: programs that it starts may go
// through all their numbers. The soft limit, often 1024, is for programs that call select().
void raise_open_files();

// Whether the system would give this process so many bytes of the host now, under its limits; none are touched.
bool has_memory(int64_t bytes);

}  // namespace shiftron
