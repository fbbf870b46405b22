// Which processors are next to a device, and how the ranks of a host share them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace shiftron {

// Processors as the system writes them: "0-3,8".
std::vector<int> processors_in(const std::string& list);
std::string list_of(const std::vector<int>& processors);  // ascending

// A device's NUMA node and the processors next to it.
struct NumaPlace {
  int node = 0;
  std::vector<int> processors;
};
// Of a PCI device, by its address ("0000:3B:00.0"), as the system says under `root`/sys. Nothing where it does not say,
// as on hosts of one node.
std::optional<NumaPlace> numa_place(const std::string& address, const std::string& root = "");

// A rank of a host: its processors, and where its device is.
struct PlacedRank {
  std::vector<int> processors;
  std::optional<NumaPlace> device;
};
// The processors that rank `rank` of a host takes in place of its own: those of all ranks that are next to its device,
// divided among the ranks whose devices are there. Empty where all keep their own: ranks share processors, so no
// launcher has bound them; each is next to its device; a device's node is not known; or a node has fewer than ranks.
std::vector<int> processors_near_device(const std::vector<PlacedRank>& ranks, size_t rank);

}  // namespace shiftron
