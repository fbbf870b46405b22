// The table of a profile.
#include "train/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shiftron
