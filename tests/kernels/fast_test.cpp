// Fast bodies against the float64 specification, over the table of awkward calls.
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

class FastTest : public ::testing::TestWithParam<KernelCase> {};

TEST_P(FastTest, Float32MatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::float32, 0);
}
TEST_P(FastTest, Float32WithStridedRowsMatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::float32, 3);
}
TEST_P(FastTest, Bfloat16MatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::bfloat16, 0);
}
TEST_P(FastTest, Bfloat16WithStridedRowsMatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::bfloat16, 3);
}

// The same call gives the same bits.
TEST_P(FastTest, Repeats) {
  const How how{.dtype = DType::bfloat16, .inputs = DType::bfloat16, .bodies = Bodies::fast};
  const Outcome first = evaluate(GetParam(), how);
  const Outcome second = evaluate(GetParam(), how);
  for (size_t i = 0; i < first.values.size(); ++i) {
    if (is_result(GetParam().arguments[i])) {
      EXPECT_EQ(first.values[i], second.values[i]) << GetParam().arguments[i].name;
    }
  }
}

// Of one thread and of two: what one is asked for is divided by rows, columns or heads, never within a sum.
TEST_P(FastTest, BitsDependOnNoThread) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const How alone{.dtype = dtype, .inputs = DType::bfloat16, .bodies = Bodies::fast, .threads = 1};
    const How together{.dtype = dtype, .inputs = DType::bfloat16, .bodies = Bodies::fast, .threads = 2};
    const Outcome one = evaluate(GetParam(), alone), two = evaluate(GetParam(), together);
    for (size_t i = 0; i < one.values.size(); ++i) {
      if (is_result(GetParam().arguments[i])) {
        EXPECT_EQ(one.values[i], two.values[i]) << GetParam().arguments[i].name << " in " << name_of(dtype);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FastTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

// The products in float32 that serve bfloat16 on processors without bfloat16 products.
TEST(FastMatmul, Bfloat16StorageWithFloat32Products) {
  for (KernelCase call : all_cases()) {
    if (!call.name.starts_with("matmul") && !call.name.starts_with("attention")) continue;
    const auto run = call.run;
    call.run = [run](Stream& stream, const Tensors& tensors) {
      stream.bfloat16_matmul = false;
      stream.bfloat16_tiles = false;
      run(stream, tensors);
    };
    expect_fast_matches_specification(call, DType::bfloat16, 3);
  }
}

// Sums as long as a training step's, which a library might divide among its threads.
TEST(FastMatmul, BitsOfLongSumsDependOnNoThread) {
  std::vector<KernelCase> cases;
  add_matmul_cases(cases, 2100, 40, 24);
  add_matmul_cases(cases, 70, 48, 4000);
  for (const KernelCase& call : cases) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const How alone{.dtype = dtype, .inputs = DType::bfloat16, .bodies = Bodies::fast, .threads = 1};
      const How together{.dtype = dtype, .inputs = DType::bfloat16, .bodies = Bodies::fast, .threads = 2};
      const Outcome one = evaluate(call, alone), two = evaluate(call, together);
      EXPECT_EQ(one.values.back(), two.values.back()) << call.name << " in " << name_of(dtype);
    }
  }
}

TEST(FastMatmul, MeasuresAPeak) {
  Device device(DeviceKind::cpu, Bodies::fast);
  EXPECT_GT(measure_matmul_peak(device.stream, DType::float32), 1e6);
  bfloat16_matmul_pays(device.stream);
  bfloat16_tiles_pay(device.stream);
  EXPECT_TRUE(device.ledger.kernels().empty());
}

}  // namespace
}  // namespace shiftron::kernel_testing
