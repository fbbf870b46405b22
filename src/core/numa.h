// Which processors are next to a device, and how the ranks of a host share them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace shiftron {

// Lists of processors in the system's notation: "0-3,8".
std::vector<int> processors_in(const std::string& list);
std::string list_of(const std::vector<int>& processors);  // ascending

// A device's NUMA node and the processors next to it.
struct NumaPlace {
  int node = 0;
  std::vector<int> processors;
};
// Of a PCI device, by its address ("0000:3B:00.0"), from `root`/sys. Nothing if the system does not report it, as on
// hosts with one node.
std::optional<NumaPlace> numa_place(const std::string& address, const std::string& root = "");

// A rank of a host: its processors, and the location of its device.
struct PlacedRank {
  std::vector<int> processors;
  std::optional<NumaPlace> device;
};
// The processors that rank `rank` of a host uses instead of its own: those of all ranks that are next to its device,
// divided among the ranks whose devices are there. Empty if all keep their own: ranks share processors, so no launcher
// has bound them; each is next to its device; a device's node is unknown; or a node has fewer processors than ranks.
std::vector<int> processors_near_device(const std::vector<PlacedRank>& ranks, size_t rank);

}  // namespace shiftron
