// What is reported about hosts from what their ranks found.
#include "preflight/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "expect_error.h"
#include "small_disk.h"
#include "train/engine.h"
#include "train/small_model.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;

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
  std::vector<HostFault> warnings;
  const std::vector<HostFault> faults = judge(reports, warnings);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(faults.size(), 1u);
  return faults.empty() ? "" : faults[0].host + ": " + faults[0].what;
}

TEST(Preflight, NothingIsWrong) {
  std::vector<HostFault> warnings;
  EXPECT_THAT(judge(three_hosts(), warnings), IsEmpty());
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(Preflight, TheOddHostIsNamed) {
  std::vector<RankReport> reports = three_hosts();
  reports[2].files["libmpi.so.40"] = "3c";
  EXPECT_THAT(fault_of(reports), HasSubstr("n1: libmpi.so.40 differs from the other hosts'"));
  reports = three_hosts();
  reports[4].clock += 60;
  EXPECT_THAT(fault_of(reports), HasSubstr("n2: its clock is 60 s ahead of the others'"));
  reports = three_hosts();
  reports[0].clock -= 3600;
  EXPECT_THAT(fault_of(reports), HasSubstr("n0: its clock is 3600 s behind the others'"));
  reports = three_hosts();
  reports[0].disk_fault = "it cannot write to /run: read-only";
  EXPECT_THAT(fault_of(reports), HasSubstr("n0: it cannot write"));
  reports = three_hosts();
  reports[3].data_fault = "cannot open /data/dataset.json";
  EXPECT_THAT(fault_of(reports),
              HasSubstr("n1: its rank 1 cannot open data that other hosts can: cannot open /data/dataset.json"));
  reports = three_hosts();
  reports[5].wrong_products = 3;
  EXPECT_THAT(fault_of(reports), HasSubstr("n2: a matrix product on its rank 1 has 3 wrong elements"));
  reports = three_hosts();
  reports[3].device_fault = "no GPU found on host n1";
  reports[3].operations = 0;
  EXPECT_THAT(fault_of(reports), HasSubstr("n1: on its rank 1: no GPU found on host n1"));
}

// Three hosts of two ranks each, of which these have GPUs of such names.
std::vector<RankReport> on_devices(const std::vector<std::string>& devices) {
  std::vector<RankReport> reports = three_hosts();
  for (size_t rank = 0; rank < reports.size(); ++rank) reports[rank].device = devices[rank];
  return reports;
}

TEST(Preflight, AHostOfFewerGpusThanRanksIsUnfit) {
  EXPECT_EQ(fault_of(on_devices({"a", "b", "c", "c", "d", "e"})).substr(0, 26), "n1: 2 ranks share 1 GPU, b");
  std::vector<HostFault> warnings;
  EXPECT_THAT(judge(on_devices({"a", "b", "a", "b", "a", "b"}), warnings), IsEmpty());
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(Preflight, WhereAllHostsShareTheirGpusThatIsTold) {
  std::vector<HostFault> warnings;
  EXPECT_THAT(judge(on_devices({"a", "a", "b", "b", "c", "c"}), warnings), IsEmpty());
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_EQ(warnings[0].host + ": " + warnings[0].what, "n0: 2 ranks share 1 GPU");
}

// These are reported as separate faults.
TEST(Preflight, DevicesThatDoNotStartAreNotShared) {
  std::vector<RankReport> reports = on_devices({"a", "b", "c", "", "d", "e"});
  reports[3].device_fault = "cudaSetDevice: no such device";
  EXPECT_THAT(fault_of(reports), HasSubstr("n1: on its rank 1: cudaSetDevice"));
}

TEST(Preflight, ASlowHostIsToldAndStays) {
  std::vector<RankReport> reports = three_hosts();
  reports[3].operations = 0.4e9;
  std::vector<HostFault> warnings;
  EXPECT_THAT(judge(reports, warnings), IsEmpty());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].host, "n1");
}

// Of hosts that do not see the probes of others those are unfit that see no more than half of them.
TEST(Preflight, WhoSeesTooFewOfTheOthersHasADiskOfItsOwn) {
  EXPECT_EQ(shared_directory_fault("/run", 4, {}), "");
  EXPECT_EQ(shared_directory_fault("/run", 4, {"n3"}), "");
  EXPECT_THAT(shared_directory_fault("/run", 4, {"n0", "n1", "n2"}),
              HasSubstr("its /run is not the other hosts' directory"));
  EXPECT_THAT(shared_directory_fault("/run", 2, {"n1"}), HasSubstr("/run does not show what n1 has written"));
  EXPECT_THAT(shared_directory_fault("/run", 4, {"n2", "n3"}),
              HasSubstr("/run does not show what n2 and 1 more hosts have"));
  EXPECT_EQ(shared_directory_fault("/run", 5, {"n3", "n4"}), "");
  EXPECT_THAT(shared_directory_fault("/run", 5, {"n0", "n1", "n2"}), HasSubstr("n0 and 2 more hosts have written"));
}

// A run that is requeued already holds most of its steps, and continues if removing the older ones frees enough space.
TEST(Preflight, RoomIsAskedForTheStepsThatComeNext) {
  RunConfig config;
  config.train.steps = 100;
  const auto expect = [&](int64_t there, int64_t least, int64_t all) {
    const DiskSpaceForSteps room = steps_needing_space(config, there);
    EXPECT_EQ(room.least, least) << there;
    EXPECT_EQ(room.all, all) << there;
  };
  config.checkpoint = {.every = 10, .keep = 2};
  expect(0, 2, 3);
  expect(1, 1, 2);
  expect(2, 1, 1);
  expect(7, 1, 0);
  config.checkpoint.keep = 1;
  expect(1, 1, 1);
  config.checkpoint.every = 0;
  expect(0, 1, 1);
  config.checkpoint.every = 100;  // step 0 is removed after the last one
  expect(0, 2, 2);
  expect(1, 1, 1);
}

TEST(Preflight, LessRoomThanKeepTakesIsTold) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount";
  RunConfig config = small_config({}, Precision::fp64);
  config.output.directory = disk.path();
  const auto step = static_cast<uint64_t>(count_parameters(config).total) * 24;
  config.train.steps = 100;
  config.checkpoint = {.every = 1, .keep = 50};
  const std::string room = std::to_string(free_disk_space(disk.path()) / step);
  EXPECT_EQ(
      check_disk_space(config),
      disk.path() + " has space for " + room +
          " of the 51 checkpoints that checkpoint.keep=50 needs: older ones are removed before the next is written");
  config.checkpoint.keep = 1;
  EXPECT_EQ(check_disk_space(config), "");
  config.model.vocab = 100'000;
  EXPECT_ERROR(check_disk_space(config), ExitCode::bad_input, "two checkpoints need ");
}

}  // namespace
}  // namespace shiftron
