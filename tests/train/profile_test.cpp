// The table of a profile.
#include "train/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace shiftron {
namespace {

using ::testing::ContainsRegex;
using ::testing::Not;

TEST(Profile, HasALineForEachOperationOfAGroup) {
  Ledger ledger;
  ledger.add_kernel("matmul", 1, 1, 1).seconds = 1;
  EXPECT_THAT(profile_table(ledger, 4, 1, {}), Not(ContainsRegex("communication")));
  ledger.traffic_time("tp", "all_gather") = {.calls = 8, .seconds = 0.4, .awaited = 0.04};
  const std::string table = profile_table(ledger, 4, 1, {});
  EXPECT_THAT(table, ContainsRegex("communication +calls +ms +awaited\n"));
  EXPECT_THAT(table, ContainsRegex("tp all_gather +2\\.0 +100\\.000 +10\\.000\n"));
}

// As on a machine that others use: each measurement finds another rate.
TEST(Profile, APeakIsCredibleIfItsMeasurementsAgree) {
  EXPECT_EQ(credible_peak({95, 100, 97}), 100);
  EXPECT_EQ(credible_peak({90, 100}), 100);
  EXPECT_TRUE(std::isnan(credible_peak({89, 100, 100})));
  EXPECT_TRUE(std::isnan(credible_peak({100, 100, 340})));
  EXPECT_TRUE(std::isnan(credible_peak({0, 0, 0}))) << "no product was measured";
}

TEST(Profile, OfAnUnknownPeakThereAreNoShares) {
  Ledger ledger;
  ledger.add_kernel("matmul", 8, 4, 8e9).seconds = 4;
  EXPECT_THAT(profile_table(ledger, 4, 1, {.operations = 4e9, .bytes = 1e9}), ContainsRegex(" 2\\.0 +50%\n"));
  const std::string unknown = profile_table(ledger, 4, 1, {.operations = std::nan(""), .bytes = 1e9});
  EXPECT_THAT(unknown, ContainsRegex(" 2\\.0 +-\n"));
  EXPECT_THAT(unknown, ContainsRegex("peak: unknown in products, as other work ran"));
}

}  // namespace
}  // namespace shiftron
