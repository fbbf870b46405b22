// Products of cuBLASLt against the float64 specification, over the table of awkward calls, and what is chosen for them.
#include "cuda/device_testing.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

std::vector<KernelCase> product_cases() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    if (call.name.starts_with("matmul")) cases.push_back(call);
  }
  return cases;
}

class Products : public ::testing::TestWithParam<KernelCase> {};

TEST_P(Products, MatchSpecification) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t padding : {0, 3, 16}) {
      CudaDevice device;
      expect_outcome_matches_specification(GetParam(), dtype, padding, evaluate_on(device, GetParam(), dtype, padding));
    }
  }
}

// Timing candidates changes nothing but what is chosen; what was chosen is used again.
TEST_P(Products, MatchSpecificationWhileCandidatesAreTimed) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    CudaDevice device;
    device.products().time_candidates(true);
    for (int call = 0; call < 2; ++call) {
      expect_outcome_matches_specification(GetParam(), dtype, 3, evaluate_on(device, GetParam(), dtype, 3));
      EXPECT_LE(device.products().choices().of.size(), 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Products, ::testing::ValuesIn(product_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

// One algorithm gives the same bits.
TEST(ProductChoices, AreKept) {
  CudaDevice first;
  first.products().time_candidates(true);
  const KernelCase call = case_of(product_cases(), "matmul_backward_weight_300_70_130");
  const std::vector<double> values = evaluate_on(first, call, DType::bfloat16, 0).values.back();
  const ProductChoices chosen = first.products().choices();
  ASSERT_EQ(chosen.of.size(), 1u);
  const ProductShape& shape = chosen.of.begin()->first;
  EXPECT_EQ(shape.m, 130);
  EXPECT_EQ(shape.n, 70);
  EXPECT_EQ(shape.k, 300);
  EXPECT_TRUE(shape.adds);
  EXPECT_GT(chosen.of.begin()->second.seconds, 0);

  const std::string text = to_json(chosen);
  EXPECT_EQ(product_choices_from(text, "a file"), chosen) << text;
  CudaDevice second;
  second.products().adopt(product_choices_from(text, "a file"));
  EXPECT_EQ(evaluate_on(second, call, DType::bfloat16, 0).values.back(), values);
  EXPECT_EQ(second.products().choices(), chosen);
}

TEST(ProductChoices, OfAnotherDeviceOrVersionAreRefused) {
  CudaDevice device;
  ProductChoices other = device.products().choices();
  other.device = "another device";
  expect_fault("products were chosen on another device", [&] { device.products().adopt(other); });
  other = device.products().choices();
  other.library += 1;
  expect_fault("products were chosen on a device with cuBLASLt ", [&] { device.products().adopt(other); });
}

TEST(ProductChoices, OfNoMeaningAreRefused) {
  const KernelCase call = case_of(product_cases(), "matmul_forward_64_64_64");
  CudaDevice first, second;
  evaluate_on(first, call, DType::float32, 0);
  ProductChoices chosen = first.products().choices();
  ASSERT_EQ(chosen.of.size(), 1u);
  chosen.of.begin()->second.algorithm.fill(~uint64_t{0});
  second.products().adopt(chosen);
  expect_fault("cublasLtMatmulAlgoCheck: CUBLAS_STATUS_", [&] { evaluate_on(second, call, DType::float32, 0); });
}

TEST(ProductKinds, Float64IsRefused) {
  CudaDevice device;
  expect_fault("has no body for float64 in CUDA",
               [&] { evaluate_on(device, case_of(product_cases(), "matmul_forward_64_64_64"), DType::float64, 0); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
