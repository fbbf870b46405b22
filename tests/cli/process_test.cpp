// The default number of threads of a rank.
#include "cli/process.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "kernels/processors.h"

namespace shiftron::cli {
namespace {

constexpr const char* kAnswer = "threads by default: ";

// This program once more, under other settings of OpenMP, which reads them at its start.
int threads_under(const std::string& environment) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      environment + " '" + self + "' --gtest_also_run_disabled_tests --gtest_filter=ThreadCount.DISABLED_Answer";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char line[512];
  while (pipe != nullptr && fgets(line, sizeof line, pipe) != nullptr) output += line;
  if (pipe != nullptr) pclose(pipe);
  const size_t at = output.find(kAnswer);
  return at == std::string::npos ? -1 : std::stoi(output.substr(at + std::string(kAnswer).size()));
}

TEST(ThreadCount, DISABLED_Answer) {
  std::cout << kAnswer << thread_count(0) << std::endl;
}

TEST(ThreadCount, AllCoresEvenWhereThreadsAreBoundToThem) {
  const int all = threads_under("OMP_PROC_BIND=false");
  EXPECT_GE(all, 1);
  EXPECT_EQ(threads_under("OMP_PROC_BIND=true OMP_PLACES=cores"), all);
  EXPECT_EQ(threads_under("taskset -c " + std::to_string(processors_of_process().front())), 1);
}

using Processors = std::vector<std::vector<int>>;

TEST(ThreadCount, RanksOfANodeShareItsProcessors) {
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const int ranks : {1, 2, 3, 5, 8, 9}) {
    EXPECT_EQ(thread_count(0, Processors(static_cast<size_t>(ranks), eight), 0), std::max(1, 8 / ranks)) << ranks;
  }
  EXPECT_EQ(thread_count(0, {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}, 1), 2);  // thirds
  EXPECT_EQ(thread_count(3, {eight, eight}, 1), 3);
}

TEST(ThreadCount, AQuotaOfProcessorsTimeIsShared) {
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(thread_count(0, {eight}, 0, 3), 3);
  EXPECT_EQ(thread_count(0, {eight, eight}, 1, 3), 1);
  EXPECT_EQ(thread_count(0, {eight, eight}, 1, 0), 4);
  EXPECT_EQ(thread_count(0, {eight, eight}, 1, 16), 4);
  EXPECT_EQ(thread_count(6, {eight, eight}, 1, 3), 6);
}

TEST(ThreadCount, BoundRanksTakeWhatTheyAreBoundTo) {
  const Processors each_its_own = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  EXPECT_EQ(thread_count(0, each_its_own, 0), 4);
  EXPECT_EQ(thread_count(0, each_its_own, 1), 4);
  const Processors two_of_a_socket = {{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}};
  EXPECT_EQ(thread_count(0, two_of_a_socket, 2), 2);
  const Processors overlapping = {{0, 1, 2, 3}, {3}};
  EXPECT_EQ(thread_count(0, overlapping, 0), 3);
  EXPECT_EQ(thread_count(0, overlapping, 1), 1);
}

TEST(ThreadCount, ABindingThatLeavesProcessorsIdleIsTold) {
  EXPECT_NE(binding_warning({{0}, {1}}, 16).find("to 2 of its 16 processors"), std::string::npos);
  EXPECT_NE(binding_warning({{0}, {1}}, 16).find("--map-by ppr:2:node:PE=8 --bind-to core"), std::string::npos);
  EXPECT_EQ(binding_warning({{0}, {1}}, 2), "");
  EXPECT_EQ(binding_warning({{0, 1}, {0, 1}}, 2), "");
  const std::string of_one = binding_warning({{0}}, 16);
  EXPECT_NE(of_one.find("the rank on"), std::string::npos) << of_one;
  EXPECT_NE(of_one.find("--map-by ppr:1:node:PE=16 --bind-to core"), std::string::npos) << of_one;
}

TEST(ThreadCount, ABoundProcessKnowsItsHost) {
  const std::vector<int> all = processors_of_host();
  const std::vector<int> before = processors_of_process();
  EXPECT_EQ(processors_of_host(), all);
  EXPECT_EQ(processors_of_process(), before) << "and stays bound as it was";
  EXPECT_TRUE(std::includes(all.begin(), all.end(), before.begin(), before.end()));
  std::thread([&] {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(before.front(), &first);
    ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
    EXPECT_EQ(processors_of_host(), all);
    EXPECT_EQ(processors_of_process(), std::vector<int>{before.front()});
  }).join();
}

}  // namespace
}  // namespace shiftron::cli
