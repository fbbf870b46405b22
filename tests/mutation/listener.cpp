// Linked into the test programs of a mutated build: writes which mutants each case reached to SHIFTRON_MUTATION_CASES, as
// lines of name, seconds, result and numbers. What is reached between cases belongs to their suite ("Suite.*") or to all ("*").
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "mutation.h"

namespace shiftron::mutation {
namespace {

class Recorder : public ::testing::EmptyTestEventListener {
 public:
  explicit Recorder(const char* path) : lines_(path, std::ios::app) {}

  void OnTestProgramStart(const ::testing::UnitTest&) override { write_others("*"); }
  void OnTestStart(const ::testing::TestInfo& info) override { write_others(std::string(info.test_suite_name()) + ".*"); }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    const ::testing::TestResult& result = *info.result();
    const char* ended = result.Skipped() ? "skipped" : result.Passed() ? "passed" : "failed";
    write(std::string(info.test_suite_name()) + "." + info.name(), static_cast<double>(result.elapsed_time()) / 1000, ended);
  }
  void OnTestSuiteEnd(const ::testing::TestSuite& suite) override { write_others(std::string(suite.name()) + ".*"); }
  void OnTestProgramEnd(const ::testing::UnitTest&) override { write_others("*"); }

 private:
  std::string take() {
    std::string numbers;
    const Reached& all = reached();
    for (long number = 1; number < all.count; ++number) {
      if (all.bytes[number] != 0) numbers += " " + std::to_string(number);
    }
    if (all.bytes != nullptr) std::memset(all.bytes, 0, static_cast<size_t>(all.count));
    return numbers;
  }
  void write_others(const std::string& name) {
    if (const std::string numbers = take(); !numbers.empty()) lines_ << name << "\t0\tother\t" << numbers << std::endl;
  }
  void write(const std::string& name, double seconds, const char* ended) {
    lines_ << name << "\t" << seconds << "\t" << ended << "\t" << take() << std::endl;
  }

  std::ofstream lines_;
};

[[maybe_unused]] const bool listens = [] {
  const char* path = std::getenv("SHIFTRON_MUTATION_CASES");
  if (path != nullptr) ::testing::UnitTest::GetInstance()->listeners().Append(new Recorder(path));
  return path != nullptr;
}();

}  // namespace
}  // namespace shiftron::mutation
