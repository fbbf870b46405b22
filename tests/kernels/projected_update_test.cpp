// Updates that end with a projection to [0, 1].
#include <gmock/gmock.h>

#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

// Over either end by the step, over it at the start, and inside; decay comes before the projection, and moments do not
// see it.
TEST(AdamW, ProjectsToTheUnitIntervalAfterTheUpdate) {
  for (const DType dtype : {DType::float64, DType::float32}) {
    for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
      Device device(DeviceKind::cpu, bodies);
      const Owned scalars(DType::float64, {kUpdateScalars}, {0.5, 1, 0.1, 0.05, 0});
      const Owned gradient(dtype, {4}, {3, -3, 0, 1});
      const Owned p(dtype, {4}, {0.25, 0.75, 1.25, 0.875}), m(dtype, {4}, {0, 0, 0, 0}), v(dtype, {4}, {0, 0, 0, 0});
      adamw(device.stream, {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-9}, scalars,
            {{.weight_decay = 0.25,
              .to_unit_interval = true,
              .gradient = gradient,
              .weight = p,
              .first_moment = m,
              .second_moment = v}});
      EXPECT_THAT(p.values(), Pointwise(DoubleNear(1e-6), std::vector<double>{0, 1, 1, 0.265625}));
      EXPECT_EQ(p[0], 0);
      EXPECT_EQ(p[1], 1);
      EXPECT_THAT(m.values(), Pointwise(DoubleNear(1e-7), std::vector<double>{0.3, -0.3, 0, 0.1}));
      EXPECT_THAT(v.values(), Pointwise(DoubleNear(1e-7), std::vector<double>{0.45, 0.45, 0, 0.05}));
    }
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
