// What holds for every call of the table: rounding of the specification, cost on meta, strides, the element header.
#include "kernels/all_cases.h"
#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

class SpecificationTest : public ::testing::TestWithParam<KernelCase> {};

TEST_P(SpecificationTest, RoundsWellInFloat32) {
  expect_specification_rounds_well(GetParam(), DType::float32);
}
TEST_P(SpecificationTest, RoundsWellInBfloat16) {
  expect_specification_rounds_well(GetParam(), DType::bfloat16);
}

// Meta runs no body and writes the same cost.
TEST_P(SpecificationTest, CostsTheSameOnMeta) {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    const Outcome cpu = evaluate(GetParam(), {.dtype = dtype});
    const Outcome meta = evaluate(GetParam(), {.dtype = dtype, .device = DeviceKind::meta});
    ASSERT_EQ(cpu.cost.size(), 1u);
    EXPECT_EQ(cpu.cost, meta.cost) << name_of(dtype);
    EXPECT_TRUE(meta.values.empty());
  }
}

// Rows may be strided: the same bits, and nothing is written between the rows.
TEST_P(SpecificationTest, StridesChangeNothing) {
  const Outcome dense = evaluate(GetParam(), {});
  const Outcome strided = evaluate(GetParam(), {.padding = 5});
  for (size_t i = 0; i < dense.values.size(); ++i) {
    if (!is_result(GetParam().arguments[i])) continue;
    EXPECT_EQ(dense.values[i], strided.values[i]) << GetParam().arguments[i].name;
    for (const double value : dense.values[i]) ASSERT_TRUE(std::isfinite(value)) << GetParam().arguments[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpecificationTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(Element, Bfloat16RoundsToNearestEven) {
  const auto bits = [](float value) { return to_bfloat16(value).bits; };
  EXPECT_EQ(bits(1.0f), 0x3F80);
  EXPECT_EQ(bits(1.0f + 0x1p-8f), 0x3F80);             // a tie goes to the even neighbour below
  EXPECT_EQ(bits(1.0f + 0x3p-8f), 0x3F82);             // and above
  EXPECT_EQ(bits(1.0f + 0x1p-8f + 0x1p-20f), 0x3F81);  // past the tie
  EXPECT_EQ(bits(-0.0f), 0x8000);
  EXPECT_EQ(bits(std::numeric_limits<float>::max()), 0x7F80);  // infinity
  EXPECT_EQ(bits(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_TRUE(std::isnan(to_accumulate(to_bfloat16(std::bit_cast<float>(0x7F800001u)))));  // stays NaN
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const float value = to_accumulate(bfloat16{static_cast<uint16_t>(pattern)});
    if (!std::isnan(value)) {
      ASSERT_EQ(bits(value), pattern);
    }
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
