// CUDA's bodies of the RMS norm against the float64 specification, over the table of awkward calls, calls whose rows
// are read in packs, and more rows than blocks.
#include "cuda/device_testing.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

std::vector<KernelCase> norm_cases() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    if (call.name.starts_with("rms_norm")) cases.push_back(call);
  }
  for (const auto& [rows, hidden] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{3, 8}, {2, 2048}, {2, 2056}, {9, 512}, {531, 24}}) {
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

INSTANTIATE_TEST_SUITE_P(All, NormKernels, ::testing::ValuesIn(norm_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace shiftron::kernel_testing
