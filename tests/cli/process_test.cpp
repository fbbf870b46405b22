// Threads of a rank by default.
#include "cli/process.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>

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
  std::cout << kAnswer << thread_count(0, 1) << std::endl;
}

TEST(ThreadCount, AllCoresEvenWhereThreadsAreBoundToThem) {
  const int all = threads_under("OMP_PROC_BIND=false");
  EXPECT_GE(all, 1);
  EXPECT_EQ(threads_under("OMP_PROC_BIND=true OMP_PLACES=cores"), all);
  EXPECT_EQ(threads_under("taskset -c 0"), 1);
}

TEST(ThreadCount, RanksOfANodeShareItsCores) {
  const int all = thread_count(0, 1);
  EXPECT_EQ(thread_count(0, 2), std::max(1, all / 2));
  EXPECT_EQ(thread_count(0, 2 * all), 1);
  EXPECT_EQ(thread_count(3, 2), 3);
}

}  // namespace
}  // namespace shiftron::cli
