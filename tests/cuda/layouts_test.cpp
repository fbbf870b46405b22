// Training on devices in many layouts, ranks as threads: a few, and all.
#include <gtest/gtest.h>

#include "cuda/gpus.h"
#include "cuda/layout_training.h"

namespace shiftron::testing {
namespace {

class DeviceLayouts : public ::testing::TestWithParam<DeviceLayout> {};

TEST_P(DeviceLayouts, TrainLikeOneRankOfTheCpu) {
  NEED_GPUS(GetParam().ranks);
  run_thread_ranks(GetParam().ranks,
                   [](HostCommunicator& world) { check_layout(GetParam(), world, {.local_rank = world.rank()}); });
}

std::vector<DeviceLayout> a_few() {
  std::vector<DeviceLayout> few = device_layouts();
  std::erase_if(few, [](const DeviceLayout& layout) {
    return layout.name != "zero_dp2" && layout.name != "tp2_pp2" && layout.name != "pp2_zb_v";
  });
  return few;
}
std::string name_of(const ::testing::TestParamInfo<DeviceLayout>& layout) {
  return layout.param.name;
}

INSTANTIATE_TEST_SUITE_P(Few, DeviceLayouts, ::testing::ValuesIn(a_few()), name_of);
INSTANTIATE_TEST_SUITE_P(All, DeviceLayouts, ::testing::ValuesIn(device_layouts()), name_of);

}  // namespace
}  // namespace shiftron::testing
