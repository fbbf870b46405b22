// The emulated NCCL between processes: this one, with ranks that are threads, and another that it starts and kills.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "machine/cuda/nccl_ranks.h"
#include "machine/cuda/nccl_testing.h"

namespace shiftron {
namespace {

using machine::RawRank;

constexpr const char* kId = "SHIFTRON_TEST_NCCL_ID";

std::string to_hex_text(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

std::string from_hex_text(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

// Runs the disabled test of that name in another process, as the last of the ranks.
pid_t start_peer(const std::string& test, const std::string& id) {
  setenv(kId, to_hex_text(id).c_str(), 1);
  // This process's share of the tests is not the peer's, whose only test may be in another.
  for (const char* share : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(share);
  std::string program(PATH_MAX, 0), filter = "--gtest_filter=NcclPeer.DISABLED_" + test;
  program.resize(static_cast<size_t>(readlink("/proc/self/exe", program.data(), program.size())));
  std::string disabled = "--gtest_also_run_disabled_tests";
  char* const words[] = {program.data(), filter.data(), disabled.data(), nullptr};
  pid_t peer = 0;
  CHECK(posix_spawn(&peer, program.c_str(), nullptr, nullptr, words, environ) == 0, "posix_spawn of ", program);
  return peer;
}

// What is open of communicators' memory, which has no other name.
int open_segments() {
  int found = 0;
  DIR* const files = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(files)) {
    char target[PATH_MAX] = "";
    const ssize_t length =
        readlink(("/proc/self/fd/" + std::string(entry->d_name)).c_str(), target, sizeof(target) - 1);
    if (length > 0 && std::string(target).find("machine's NCCL") != std::string::npos) ++found;
  }
  closedir(files);
  return found;
}

void set_first(const RawRank& rank, float value) {
  float* room = nullptr;
  cudaMallocHost(reinterpret_cast<void**>(&room), sizeof(float));
  *room = value;
  cudaMemcpyAsync(rank.data, room, sizeof(float), cudaMemcpyHostToDevice, rank.stream);
  rank.finish();
  cudaFreeHost(room);
}

// As rank 2 of 3 on a device of its own, the only one that it is shown: adds 100, and stays.
TEST(NcclPeer, DISABLED_AddsAndStays) {
  const machine::VisibleDevices visible("1");
  const RawRank rank(from_hex_text(std::getenv(kId)), 2, 3);
  set_first(rank, 100);
  rank.all_reduce(rank.data, rank.data);
  rank.finish();
  pause();
}

TEST(NcclPeer, DISABLED_SharesTheDevice) {
  const machine::VisibleDevices visible("1,0");  // the others' by another number
  cudaSetDevice(1);
  EXPECT_THROW(RawRank(from_hex_text(std::getenv(kId)), 2, 3), Error);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Which NCCL finds out at once, and which nobody but the watchdog ends else.
TEST(NcclProcesses, APeerThatIsKilledIsLost) {
  for (const Order order : kOrders) {
    machine::restart_device({.order = order, .patience = scaled(60)});
    machine::set_nccl({.patience = scaled(60)});
    const std::string id = machine::new_id();
    const pid_t peer = start_peer("AddsAndStays", id);
    run_thread_ranks(2, [&](HostCommunicator& world) {
      RawRank rank(id, world.rank(), 3);
      set_first(rank, static_cast<float>(1 + world.rank()));
      rank.all_reduce(rank.data, rank.data);
      const float sum = rank.values(0, 1, rank.stream)[0];
      CHECK(sum == 103, "the sum of threads and a process: ", sum);
      rank.all_reduce(rank.data, rank.data);
      ncclResult_t found = ncclSuccess;
      ncclCommGetAsyncError(rank.comm, &found);
      CHECK(found == ncclSuccess, "lost before");
      world.barrier();
      if (world.rank() == 0) kill(peer, SIGKILL);
      const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(scaled(20));
      while (found == ncclSuccess && std::chrono::steady_clock::now() < end) {
        ncclCommGetAsyncError(rank.comm, &found);
        std::this_thread::yield();
      }
      CHECK(found == ncclRemoteError, "NCCL says ", ncclGetErrorString(found));
      world.barrier();  // else one ends by the other's abort
    });                 // which abort, and wait for their streams
    int status = 0;
    waitpid(peer, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << kOrderNames[static_cast<int>(order)];
    EXPECT_EQ(machine::nccl_communicators(), 0);
    EXPECT_EQ(open_segments(), 0);
  }
}

TEST(NcclProcesses, TwoOfThemTakeNoDeviceTogether) {
  machine::restart_device({.patience = scaled(60)});
  machine::set_nccl({.patience = scaled(60)});
  const std::string id = machine::new_id();
  const pid_t peer = start_peer("SharesTheDevice", id);
  run_thread_ranks(2, [&](HostCommunicator& world) {
    EXPECT_THROW(RawRank(id, world.rank(), 3), Error);
    EXPECT_STREQ(
        ncclGetLastError(nullptr),
        ("Duplicate GPU detected: rank " + std::to_string(world.rank()) + " and rank 2 both on device 0").c_str());
  });
  int status = 0;
  waitpid(peer, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(open_segments(), 0);
}

}  // namespace
}  // namespace shiftron
