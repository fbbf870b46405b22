// Reads /proc/meminfo and the files of control groups, version 1 and 2.
#include "core/host_limits.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace shiftron {
namespace {

namespace fs = std::filesystem;

// The first word of a file with one number; nothing if there is no file, or the word is "max".
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return {};
}

// The number after `name` on its line.
std::optional<int64_t> number_of(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == name) return number;
  }
  return {};
}

// Folders of this process's control groups, the innermost first. In a container the path may be the host's: then only
// the groups above it exist, of which the container sees the outermost.
std::vector<fs::path> groups_of(const std::string& controller, const std::string& root) {
  const fs::path mounts = root + "/sys/fs/cgroup";
  std::vector<fs::path> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool of_version_2 = controllers.empty();
    if (!of_version_2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    std::error_code ignored;
    for (const fs::path& mount : of_version_2 ? std::vector<fs::path>{mounts, mounts / "unified"}
                                              : std::vector<fs::path>{mounts / controllers, mounts / controller}) {
      if (!fs::is_directory(mount, ignored)) continue;
      for (fs::path group = path; !group.empty(); group = group.parent_path()) groups.push_back(mount / group);
      groups.push_back(mount);
      if (!of_version_2) break;  // both names mean the same group
    }
  }
  return groups;
}

struct GroupNames {
  const char *limit, *usage, *swap_limit, *swap_usage, *files[2];
  bool swap_with_memory;  // the limit of swap is one of memory and swap together
};
constexpr GroupNames kMemoryNames[] = {
    {"memory.max", "memory.current", "memory.swap.max", "memory.swap.current", {"active_file", "inactive_file"}, false},
    {"memory.limit_in_bytes",
     "memory.usage_in_bytes",
     "memory.memsw.limit_in_bytes",
     "memory.memsw.usage_in_bytes",
     {"total_active_file", "total_inactive_file"},
     true}};

}  // namespace

std::optional<HostMemoryInfo> host_memory_info(const std::string& root) {
  const std::string host = root + "/proc/meminfo";
  const auto kibibytes = [&](const char* name) { return number_of(host, name); };
  const std::optional<int64_t> available = kibibytes("MemAvailable:"), total = kibibytes("MemTotal:");
  if (!available || !total) return {};
  HostMemoryInfo room{.total = *total << 10};
  int64_t memory = *available << 10, swap = kibibytes("SwapFree:").value_or(0) << 10, together = memory + swap;
  for (const fs::path& group : groups_of("memory", root)) {
    for (const GroupNames& names : kMemoryNames) {
      int64_t files = 0;
      for (const char* kept : names.files) files += number_of(group / "memory.stat", kept).value_or(0);
      const std::optional<int64_t> limit = number_in(group / names.limit), usage = number_in(group / names.usage);
      if (limit && usage && *limit < *total << 10) {  // without a limit: no number, or a huge one
        memory = std::min(memory, *limit - *usage + files);
        room.total = std::min(room.total, *limit);
      }
      const std::optional<int64_t> swap_limit = number_in(group / names.swap_limit),
                                   swap_usage = number_in(group / names.swap_usage);
      if (!swap_limit || !swap_usage) continue;
      const int64_t left = *swap_limit - *swap_usage;
      if (names.swap_with_memory)
        together = std::min(together - files, left) + files;
      else
        swap = std::min(swap, left);
    }
  }
  room.available = std::max<int64_t>(std::min(std::max<int64_t>(memory, 0) + std::max<int64_t>(swap, 0), together), 0);
  return room;
}

int processor_quota(const std::string& root) {
  int64_t least = std::numeric_limits<int>::max();
  const auto limit = [&](int64_t quota, int64_t period) {  // microseconds
    if (quota > 0 && period > 0) least = std::min(least, (quota + period - 1) / period);
  };
  for (const fs::path& group : groups_of("cpu", root)) {
    std::ifstream both(group / "cpu.max");
    int64_t quota = 0, period = 0;
    if (both >> quota >> period) limit(quota, period);
    limit(number_in(group / "cpu.cfs_quota_us").value_or(0), number_in(group / "cpu.cfs_period_us").value_or(0));
  }
  return least == std::numeric_limits<int>::max() ? 0 : static_cast<int>(least);
}

void raise_open_files() {
  constexpr rlim_t kMost = rlim_t{1} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);  // if refused, the old limit stays
}

bool has_memory(int64_t bytes) {
  if (const std::optional<HostMemoryInfo> room = host_memory_info(); room && bytes > room->available) return false;
  const auto size = static_cast<size_t>(bytes);
  void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  ::munmap(mapped, size);
  return true;
}

}  // namespace shiftron
