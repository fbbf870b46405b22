// CUDA's bodies of attention against the float64 specification, over the table of awkward calls: cuDNN's plans if the
// rows allow them, otherwise our own kernels, as when cuDNN plans nothing.
#include "cuda/attention_cases.h"
#include "cuda/device_testing.h"

namespace shiftron::kernel_testing {
namespace {

class Attention : public ::testing::TestWithParam<KernelCase> {};

// Padding of 16 elements keeps rows aligned, of 3 it does not: then own kernels serve, as always in float32.
TEST_P(Attention, MatchesSpecification) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t padding : {0, 3, 16}) {
      CudaDevice device;
      expect_outcome_matches_specification(GetParam(), dtype, padding, evaluate_on(device, GetParam(), dtype, padding));
#ifndef SHIFTRON_REAL_GPUS  // whose library knows no engine for some
      EXPECT_TRUE(device.attention().refusals().empty());
#endif
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Attention, ::testing::ValuesIn(attention_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace shiftron::kernel_testing
