// CUDA's bodies of the RMS norm against the float64 specification, over the table of awkward calls, rows in packs
// for each number of warps and packs, and more rows than blocks.
#include "cuda/device_testing.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

std::vector<KernelCase> norm_cases() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    if (call.name.find("rms_norm") != std::string::npos) cases.push_back(call);
  }
  for (const auto& [rows, hidden] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{3, 8},       // 1 warp to a row, 1 pack to a lane
                                                          {4, 136},     // 2 in float32
                                                          {9, 512},     // 2
                                                          {13, 768},    // 3
                                                          {531, 1000},  // 4; blocks whose last warps run dry
                                                          {2, 1032},    // 2 warps, 3 packs
                                                          {5, 2048},    // 4
                                                          {531, 2056},  // 4 warps, 3 packs
                                                          {3, 4096},    // 4
                                                          {2, 4104},    // 8 warps, 3 packs; read twice in float32
                                                          {2, 8192},    // 4
                                                          {2, 8200},    // read twice
                                                          {531, 24},
                                                          {2400, 8}}) {  // more rows than warps
    add_rms_norm_cases(cases, rows, hidden);
  }
  return cases;
}

class NormKernels : public ::testing::TestWithParam<KernelCase> {};

TEST_P(NormKernels, MatchSpecificationInFloat32) {
  expect_device_matches_specification(GetParam(), DType::float32);
}
TEST_P(NormKernels, MatchSpecificationInBfloat16) {
  expect_device_matches_specification(GetParam(), DType::bfloat16);
}
TEST_P(NormKernels, Repeat) {
  expect_device_repeats(GetParam());
}

TEST_P(NormKernels, RefuseFloat64) {
  if (GetParam().arguments[0].shape[0] == 0) return;
  CudaDevice device;
  expect_fault(" has no body for float64 in CUDA", [&] { evaluate_on(device, GetParam(), DType::float64, 0); });
}

TEST(CudaNorm, BehindASumHasTheBitsOfBoth) {
  for (const int64_t hidden : {67, 768, 2056, 8200}) {
    const std::vector<KernelCase> calls = sum_and_norm_both_ways(3, hidden);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      CudaDevice device;
      EXPECT_EQ(evaluate_on(device, calls[0], dtype, 0).values, evaluate_on(device, calls[1], dtype, 0).values);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, NormKernels, ::testing::ValuesIn(norm_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace shiftron::kernel_testing
