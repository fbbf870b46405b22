// What /proc and control groups say, as files of a scratch folder.
#include "core/host_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "few_files.h"
#include "scratch.h"

namespace shiftron {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

class HostLimits : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ / path).parent_path());
    root_.write(path, text);
  }
  void SetUp() override {
    write("proc/meminfo",
          "MemTotal:       16384000 kB\nMemFree: 1024 kB\nMemAvailable:    8192000 kB\nSwapFree: 0 kB\n");
  }
  void expect_room(int64_t available, int64_t total) {
    const std::optional<HostMemoryInfo> room = host_memory_info(root_.path());
    ASSERT_TRUE(room);
    EXPECT_EQ(room->available, available);
    EXPECT_EQ(room->total, total);
  }
  Scratch root_;
};

TEST_F(HostLimits, AHostWithoutGroupsLeavesWhatIsAvailable) {
  expect_room(8192000 * int64_t{1024}, 16384000 * int64_t{1024});
  EXPECT_EQ(processor_quota(root_.path()), 0);
  EXPECT_FALSE(host_memory_info(root_ / "nowhere"));
}

TEST_F(HostLimits, OfVersion2TheTightestGroupDecides) {
  write("proc/self/cgroup", "0::/slice/job/step\n");
  const std::string top = "sys/fs/cgroup/";
  write(top + "slice/memory.max", "max\n");
  write(top + "slice/memory.current", "123\n");
  write(top + "slice/job/memory.max", std::to_string(1000 * kMebibyte));
  write(top + "slice/job/memory.current", std::to_string(700 * kMebibyte));
  write(top + "slice/job/memory.stat", "anon 5\nactive_file 1048576\ninactive_file 2097152\nslab 7\n");
  write(top + "slice/job/step/memory.max", std::to_string(2000 * kMebibyte));
  write(top + "slice/job/step/memory.current", std::to_string(700 * kMebibyte));
  expect_room(303 * kMebibyte, 1000 * kMebibyte);
  write("proc/meminfo", "MemTotal: 16384000 kB\nMemAvailable: 8192000 kB\nSwapFree: 67108864 kB\n");
  write(top + "slice/job/memory.swap.max", "0\n");
  write(top + "slice/job/memory.swap.current", "0\n");
  expect_room(303 * kMebibyte, 1000 * kMebibyte);
  write(top + "slice/job/memory.swap.max", std::to_string(50 * kMebibyte));
  write(top + "slice/job/memory.swap.current", std::to_string(10 * kMebibyte));
  write(top + "slice/job/step/memory.swap.max", "max\n");
  write(top + "slice/job/step/memory.swap.current", "0\n");
  expect_room(343 * kMebibyte, 1000 * kMebibyte);
  write(top + "slice/cpu.max", "max 100000\n");
  write(top + "slice/job/cpu.max", "350000 100000\n");
  write(top + "slice/job/step/cpu.max", "600000 100000\n");
  EXPECT_EQ(processor_quota(root_.path()), 4);
}

// As in a container of version 1, whose own group is what it sees as the outermost.
TEST_F(HostLimits, OfVersion1TheMountDecidesWhereThePathIsTheHosts) {
  write("proc/self/cgroup", "5:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n1:name=systemd:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(512 * kMebibyte));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(600 * kMebibyte));
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 99\ntotal_active_file 0\ntotal_inactive_file 1048576\n");
  expect_room(0, 512 * kMebibyte);
  write("proc/meminfo", "MemTotal: 16384000 kB\nMemAvailable: 8192000 kB\nSwapFree: 1024 kB\n");
  expect_room(kMebibyte, 512 * kMebibyte);  // swap, which no group limits
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.memsw.usage_in_bytes", std::to_string(600 * kMebibyte));
  expect_room(kMebibyte, 512 * kMebibyte);
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(500 * kMebibyte));
  write("sys/fs/cgroup/memory/memory.memsw.usage_in_bytes", std::to_string(500 * kMebibyte));
  expect_room(14 * kMebibyte, 512 * kMebibyte);
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", std::to_string(512 * kMebibyte));
  expect_room(13 * kMebibyte, 512 * kMebibyte);  // memory and swap together
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_.path()), 1);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(processor_quota(root_.path()), 0);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "9223372036854771712\n");
  expect_room(8193024 * int64_t{1024}, 16384000 * int64_t{1024});
}

TEST_F(HostLimits, ThisHostTells) {
  const std::optional<HostMemoryInfo> room = host_memory_info();
  ASSERT_TRUE(room);
  EXPECT_GT(room->total, 0);
  EXPECT_FALSE(has_memory(room->available + (int64_t{1} << 40)));
}

// As a shell may have lowered it, below what it would let the process have.
TEST_F(HostLimits, AsManyFilesMayBeOpenAsTheHardLimitAllows) {
  rlimit hard{};
  getrlimit(RLIMIT_NOFILE, &hard);
  const FewFiles few(4);
  raise_open_files();
  rlimit raised{};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, std::min(hard.rlim_max, rlim_t{1} << 20));
  EXPECT_EQ(raised.rlim_max, hard.rlim_max);
}

}  // namespace
}  // namespace shiftron
