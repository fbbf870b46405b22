// Products of cuBLASLt against the float64 specification, over the table of awkward calls, and what is chosen for them.
#include "cuda/device_testing.h"
#include "cuda/gpus.h"
#include "kernels/all_cases.h"
#include "kernels/element.h"
#include "kernels/kernels.h"

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

// Timing candidates changes nothing but what is chosen, which rounds no parts of sums; what was chosen is used again.
TEST_P(Products, MatchSpecificationWhileCandidatesAreTimed) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    CudaDevice device;
    device.products().time_candidates(true);
    for (int call = 0; call < 2; ++call) {
      expect_outcome_matches_specification(GetParam(), dtype, 3, evaluate_on(device, GetParam(), dtype, 3));
      EXPECT_LE(device.products().choices().of.size(), 1u);
    }
    for (const auto& [shape, choice] : device.products().choices().of) {
      const uint32_t reduction = reduction_of(choice);
      EXPECT_TRUE(reduction == CUBLASLT_REDUCTION_SCHEME_NONE || reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
          << reduction << ": " << shape.text();
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

#ifdef SHIFTRON_REAL_GPUS  // 9 GB
// As logits of long batches are.
TEST(ProductKinds, ResultsOfMoreThan32BitsOfElements) {
  NEED_GPU_MEMORY(size_t{10} << 30);
  constexpr int64_t kRows = 66'000, kIn = 64, kOut = 65'600;
  CudaDevice device;
  Owned x(DType::bfloat16, {kRows, kIn}), w(DType::bfloat16, {kOut, kIn});
  x.set(random_values("x", kRows * kIn));
  w.set(random_values("w", kOut * kIn));
  const DeviceCopy x_there(x, device), w_there(w, device);
  void* memory = nullptr;
  expect_done(cudaMalloc(&memory, static_cast<size_t>(2 * kRows * kOut)));
  const DeviceOwner<void> result(memory);
  const Tensor y(memory, DType::bfloat16, {kRows, kOut}, DeviceKind::cuda);
  matmul_forward(device.stream, x_there.tensor(), w_there.tensor(), y);
  device.wait();
  for (const int64_t row : {int64_t{0}, int64_t{32'736}, int64_t{65'473}, kRows - 1}) {
    std::vector<bfloat16> there(kOut);
    expect_done(cudaMemcpy(there.data(), static_cast<const bfloat16*>(memory) + row * kOut, there.size() * 2,
                           cudaMemcpyDeviceToHost));
    for (int64_t column = 0; column < kOut; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < kIn; ++i) sum += x[row * kIn + i] * w[column * kIn + i];
      // 64 terms of about 1 in float32, and one rounding.
      ASSERT_NEAR(to_accumulate(there[static_cast<size_t>(column)]), sum, 1e-4 + std::abs(sum) / 256) << row << " " << column;
    }
  }
}
#endif

TEST(ProductKinds, Float64IsRefused) {
  CudaDevice device;
  expect_fault("has no body for float64 in CUDA",
               [&] { evaluate_on(device, case_of(product_cases(), "matmul_forward_64_64_64"), DType::float64, 0); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
