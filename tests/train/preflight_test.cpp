// What is said of hosts by what their ranks found.
#include "train/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shiftron {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Three hosts with two ranks each, on which nothing is wrong.
std::vector<RankReport> three_hosts() {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 6; ++rank) {
    RankReport report{.host = "n" + std::to_string(rank / 2),
                      .local_rank = rank % 2,
                      .clock = 1000.0 + rank * 0.01,
                      .operations = 1e9};
    if (report.local_rank == 0) report.files = {{"shiftron", "1a"}, {"libmpi.so.40", "2b"}};
    reports.push_back(report);
  }
  return reports;
}

// The one fault that is found, as "host: what".
std::string fault_of(const std::vector<RankReport>& reports) {
  std::vector<HostFault> slow;
  const std::vector<HostFault> faults = judge(reports, slow);
  EXPECT_THAT(slow, IsEmpty());
  EXPECT_EQ(faults.size(), 1u);
  return faults.empty() ? "" : faults[0].host + ": " + faults[0].what;
}

TEST(Preflight, NothingIsWrong) {
  std::vector<HostFault> slow;
  EXPECT_THAT(judge(three_hosts(), slow), IsEmpty());
  EXPECT_THAT(slow, IsEmpty());
}

TEST(Preflight, TheOddHostIsNamed) {
  std::vector<RankReport> reports = three_hosts();
  reports[2].files["libmpi.so.40"] = "3c";
  EXPECT_THAT(fault_of(reports), HasSubstr("n1: libmpi.so.40 is not that of the other hosts"));
  reports = three_hosts();
  reports[4].clock += 60;
  EXPECT_THAT(fault_of(reports), HasSubstr("n2: its clock is 60 s ahead of the others'"));
  reports = three_hosts();
  reports[0].clock -= 3600;
  EXPECT_THAT(fault_of(reports), HasSubstr("n0: its clock is 3600 s behind the others'"));
  reports = three_hosts();
  reports[0].disk_fault = "it cannot write into /run: read-only";
  EXPECT_THAT(fault_of(reports), HasSubstr("n0: it cannot write"));
  reports = three_hosts();
  reports[5].wrong_products = 3;
  EXPECT_THAT(fault_of(reports), HasSubstr("n2: 3 elements of a matrix product on its rank 1 are wrong"));
  reports = three_hosts();
  reports[3].device_fault = "host n1 shows no GPU";
  reports[3].operations = 0;
  EXPECT_THAT(fault_of(reports), HasSubstr("n1: on its rank 1: host n1 shows no GPU"));
}

TEST(Preflight, ASlowHostIsToldAndStays) {
  std::vector<RankReport> reports = three_hosts();
  reports[3].operations = 0.4e9;
  std::vector<HostFault> slow;
  EXPECT_THAT(judge(reports, slow), IsEmpty());
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].host, "n1");
}

}  // namespace
}  // namespace shiftron
