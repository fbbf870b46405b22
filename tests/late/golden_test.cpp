// On a late device training agrees with the reference of tests/reference, and has the same bits as when run at once.
#include "train/golden.h"

#include "late/late_training.h"

namespace shiftron::testing {
namespace {

Measured train_late_golden(const Golden& golden, Order order) {
  Machine machine({.order = order, .seed = 1});
  const auto queue = machine.make_queue("compute");
  return train_golden(golden, queue.get());
}

class GoldenLate : public ::testing::TestWithParam<Order> {};

TEST_P(GoldenLate, AgreesWithPyTorch) {
  for (const std::string model : kGoldenModels) {
    SCOPED_TRACE(model);
    const Golden golden = read_golden(model + "-1", Precision::fp64);
    const Measured late = train_late_golden(golden, GetParam());
    expect_agrees_to_1e10(late, golden);
    EXPECT_TRUE(late == train_golden(golden));
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, GoldenLate, ::testing::ValuesIn(kOrders),
                         [](const auto& order) { return name_of(order.param); });

// What these agree with is for train/golden_test.cpp to say.
TEST(GoldenLatePrecisions, HaveTheSameBits) {
  for (const std::string model : kGoldenModels) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const Golden golden = read_golden(model + "-1", precision);
      EXPECT_TRUE(train_late_golden(golden, Order::late) == train_golden(golden))
          << model << ", " << to_string(precision);
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
