// Reads /sys/bus/pci.
#include "core/numa.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

namespace shiftron {
namespace {

constexpr int kMostProcessors = 1 << 16;

// Ranges of consecutive numbers, as [begin, end): on hosts with two threads a core each node has two of them.
std::vector<std::pair<int, int>> runs_of(const std::vector<int>& processors) {
  std::vector<std::pair<int, int>> runs;
  for (const int processor : processors) {
    if (runs.empty() || runs.back().second != processor) runs.emplace_back(processor, processor);
    runs.back().second = processor + 1;
  }
  return runs;
}

// Part `number` of `parts`: of each range, so that the two threads of a core stay together; of the whole list if a
// range is too short.
std::vector<int> part_of(const std::vector<int>& processors, int parts, int number) {
  std::vector<int> part;
  const auto add = [&](size_t begin, size_t size) {
    const size_t all = static_cast<size_t>(parts), at = static_cast<size_t>(number);
    part.insert(part.end(), processors.begin() + static_cast<std::ptrdiff_t>(begin + size * at / all),
                processors.begin() + static_cast<std::ptrdiff_t>(begin + size * (at + 1) / all));
  };
  const std::vector<std::pair<int, int>> runs = runs_of(processors);
  const auto is_long = [parts](const auto& run) { return run.second - run.first >= parts; };
  if (!std::ranges::all_of(runs, is_long)) {
    add(0, processors.size());
    return part;
  }
  size_t begin = 0;
  for (const auto& [first, end] : runs) {
    const auto size = static_cast<size_t>(end - first);
    add(begin, size);
    begin += size;
  }
  return part;
}

std::set<int> set_of(const std::vector<int>& processors) {
  return {processors.begin(), processors.end()};
}

}  // namespace

std::vector<int> processors_in(const std::string& list) {
  std::set<int> found;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::istringstream numbers(range);
    int first = 0, last = 0;
    char dash = 0;
    if (!(numbers >> first)) continue;
    if (!(numbers >> dash >> last) || dash != '-') last = first;
    for (int processor = std::max(first, 0); processor <= std::min(last, kMostProcessors - 1); ++processor)
      found.insert(processor);
  }
  return {found.begin(), found.end()};
}

std::string list_of(const std::vector<int>& processors) {
  std::string list;
  for (const auto& [begin, end] : runs_of(processors)) {
    list += (list.empty() ? "" : ",") + std::to_string(begin);
    if (end > begin + 1) list += "-" + std::to_string(end - 1);
  }
  return list;
}

std::optional<NumaPlace> numa_place(const std::string& address, const std::string& root) {
  std::string name = address;
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  const std::string device = root + "/sys/bus/pci/devices/" + name;
  NumaPlace place;
  std::string list;
  if (!(std::ifstream(device + "/numa_node") >> place.node) || place.node < 0) return {};
  std::ifstream(device + "/local_cpulist") >> list;
  place.processors = processors_in(list);
  if (place.processors.empty()) return {};
  return place;
}

std::vector<int> processors_near_device(const std::vector<PlacedRank>& ranks, size_t rank) {
  std::set<int> all;
  size_t together = 0;
  bool near = true;
  for (const PlacedRank& one : ranks) {
    if (!one.device) return {};
    all.insert(one.processors.begin(), one.processors.end());
    together += one.processors.size();
    near = near && std::ranges::includes(one.device->processors, one.processors);
  }
  if (together != all.size() || near) return {};
  std::vector<int> taken;
  for (size_t other = 0; other < ranks.size(); ++other) {
    const NumaPlace& place = *ranks[other].device;
    std::vector<int> here;
    std::ranges::set_intersection(set_of(place.processors), all, std::back_inserter(here));
    int sharers = 0, number = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].device->node != place.node) continue;
      ++sharers;
      if (i < other) ++number;
    }
    const std::vector<int> part = part_of(here, sharers, number);
    if (part.empty()) return {};
    if (other == rank) taken = part;
  }
  return taken;
}

}  // namespace shiftron
