// The check of a job's hosts, on devices.
#include "preflight/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/gpus.h"
#include "cuda/layout_training.h"
#include "scratch.h"

namespace shiftron::testing {
namespace {

using namespace std::string_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

struct Look {
  PreflightResult result;
  std::vector<std::string> parts;  // of rank 0
  std::vector<std::string> slow;   // of these: with a deadline of their own
};

Look look_at(RunConfig config, int ranks) {
  const Scratch directory;
  config.output.directory = directory.path();
  Look look;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    const bool first = world.rank() == 0;
    PreflightResult result = run_preflight(config, {.local_rank = world.rank()}, world,
                                           [&](const std::string& part, const std::optional<Deadline>& own) {
                                             if (first) look.parts.push_back(part);
                                             if (first && own) look.slow.push_back(part);
                                           });
    if (first) look.result = std::move(result);
  });
  return look;
}

class PreflightOnADevice : public ::testing::TestWithParam<DeviceLayout> {};

TEST_P(PreflightOnADevice, Passes) {
  NEED_GPUS(GetParam().ranks);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    RunConfig config = layout_config(GetParam());
    config.train.precision = precision;
    const Look look = look_at(config, GetParam().ranks);
    EXPECT_THAT(look.result.faults, IsEmpty());
    for (const char* group : {"world", "tp", "cp", "dp", "kv_replica", "tied"}) {
      EXPECT_THAT(look.parts, Contains(EndsWith(" ranks of group "s + group)));
    }
    EXPECT_THAT(look.slow, ElementsAre("connecting the groups"));
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, PreflightOnADevice,
                         ::testing::Values(DeviceLayout{"one", 1, {}}, DeviceLayout{"dp2", 2, {}},
                                           DeviceLayout{"tp2", 2, {.tp = 2}}, DeviceLayout{"pp2", 2, {.pp = 2}, true},
                                           DeviceLayout{"tp2_pp2", 4, {.tp = 2, .pp = 2}, true},
                                           DeviceLayout{"tp4", 4, {.tp = 4}}),
                         [](const ::testing::TestParamInfo<DeviceLayout>& layout) { return layout.param.name; });

}  // namespace
}  // namespace shiftron::testing
