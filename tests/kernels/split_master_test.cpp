// Masters in two halves: exact for every float32, and updated exactly like whole ones.
#include <bit>
#include <tuple>

#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

constexpr uint32_t kNearBorders[] = {0, 1, 2, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
constexpr int kRandom = 8;  // more lower halves for every upper one

// All signs, exponents and upper fractions, with lower halves around the ties and at random.
std::vector<uint32_t> many_patterns() {
  const Philox philox(3, "lower halves");
  std::vector<uint32_t> patterns;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : kNearBorders) patterns.push_back(upper << 16 | lower);
    for (int i = 0; i < kRandom; ++i) {
      const auto lower = static_cast<uint32_t>(philox.uniform(upper * kRandom + static_cast<uint32_t>(i)) * 0x10000);
      patterns.push_back(upper << 16 | lower);
    }
  }
  return patterns;
}

// Whether no bfloat16 number is nearer to `value` than `weight`; of two that are equally near, `weight` is the one
// farther from zero. Infinity counts as the number after the largest one.
bool is_nearest(float value, uint16_t weight) {
  const auto magnitude = [](uint16_t bits) {
    const uint32_t exponent = (bits >> 7) & 0xffu, fraction = bits & 0x7fu;
    return exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(fraction + 128.0, static_cast<int>(exponent) - 134);
  };
  if ((weight >> 15 != 0) != std::signbit(value)) return false;
  const double size = std::abs(static_cast<double>(value)), own = magnitude(weight);
  const auto steps = static_cast<uint16_t>(weight & 0x7fff);
  const bool not_below = steps == 0 || size >= (magnitude(static_cast<uint16_t>(steps - 1)) + own) / 2;
  const bool below_next = steps == 0x7f80 || size < (own + magnitude(static_cast<uint16_t>(steps + 1))) / 2;
  return not_below && below_next;
}

class SplitMaster : public ::testing::TestWithParam<Bodies> {};

TEST_P(SplitMaster, JoinsToTheSameBitsAndReadsAsTheNearest) {
  const std::vector<uint32_t> patterns = many_patterns();
  const auto count = static_cast<int64_t>(patterns.size());
  Device device(DeviceKind::cpu, GetParam());
  const Owned master(DType::float32, {count}), weight(DType::bfloat16, {count}), rest(DType::uint16, {count});
  std::memcpy(master.tensor().raw(), patterns.data(), patterns.size() * sizeof(uint32_t));
  split_master(device.stream, master, weight, rest);
  const auto* weights = weight.tensor().data<bfloat16>();
  const auto* rests = rest.tensor().data<uint16_t>();
  for (size_t i = 0; i < patterns.size(); ++i) {
    ASSERT_EQ(rests[i], patterns[i] & 0xffff) << std::hex << patterns[i];
    ASSERT_EQ(weights[i].bits, static_cast<uint16_t>((patterns[i] + 0x8000u) >> 16)) << std::hex << patterns[i];
    const float value = std::bit_cast<float>(patterns[i]);
    if (!std::isnan(value)) {
      ASSERT_TRUE(is_nearest(value, weights[i].bits)) << std::hex << patterns[i] << " is read as " << weights[i].bits;
    }
  }
  const Owned joined(DType::float32, {count});
  join_master(device.stream, weight, rest, joined);
  std::vector<uint32_t> back(patterns.size());
  std::memcpy(back.data(), joined.tensor().raw(), back.size() * sizeof(uint32_t));
  ASSERT_TRUE(back == patterns);
}

// What arithmetic makes of a fault is read as a fault.
TEST_P(SplitMaster, InfinitiesAndTheirDifferenceStayWhatTheyAre) {
  Device device(DeviceKind::cpu, GetParam());
  const volatile float infinity = INFINITY;
  const Owned master(DType::float32, {4}), weight(DType::bfloat16, {4}), rest(DType::uint16, {4});
  auto* values = master.tensor().data<float>();
  values[0] = infinity;
  values[1] = -infinity;
  values[2] = infinity - infinity;
  values[3] = std::numeric_limits<float>::quiet_NaN();
  split_master(device.stream, master, weight, rest);
  EXPECT_EQ(weight[0], INFINITY);
  EXPECT_EQ(weight[1], -INFINITY);
  EXPECT_TRUE(std::isnan(weight[2]));
  EXPECT_TRUE(std::isnan(weight[3]));
}

// The same bits as an update of whole masters, and both halves of each.
TEST_P(SplitMaster, AdamWUpdatesHalvesAsItUpdatesWholeMasters) {
  constexpr int64_t kCount = 40'001;
  Device device(DeviceKind::cpu, GetParam());
  const AdamW how{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  const auto random = [](const std::string& name) {
    std::vector<double> values = random_values(name, kCount);
    for (double& value : values) value *= 1.1;
    return Owned(DType::float32, {kCount}, values);
  };
  const std::vector<double> nothing(kCount);
  const Owned p = random("p"), m(DType::float32, {kCount}, nothing), v(DType::float32, {kCount}, nothing);
  const Owned weight(DType::bfloat16, {kCount}), rest(DType::uint16, {kCount}), joined(DType::float32, {kCount});
  const Owned own_m(DType::float32, {kCount}, nothing), own_v(DType::float32, {kCount}, nothing);
  split_master(device.stream, p, weight, rest);
  for (int step = 1; step <= 3; ++step) {
    const std::string name = "gradient " + std::to_string(step);
    const Owned scalars(DType::float64, {kUpdateScalars}, update_scalars(step));
    const Owned gradient = random(name);
    const AdamWParameter whole{
        .weight_decay = 0.1, .gradient = gradient, .weight = p, .first_moment = m, .second_moment = v};
    adamw(device.stream, how, scalars, {whole, in_halves(whole, weight, rest, own_m, own_v)});
    join_master(device.stream, weight, rest, joined);
    ASSERT_EQ(joined.values(), p.values()) << step;
    ASSERT_EQ(own_v.values(), v.values()) << step;
    const Owned expected(DType::bfloat16, {kCount}), expected_rest(DType::uint16, {kCount});
    split_master(device.stream, p, expected, expected_rest);
    ASSERT_EQ(weight.values(), expected.values()) << step;
  }
}

TEST_P(SplitMaster, FaultsNameTheValues) {
  Device device(DeviceKind::cpu, GetParam());
  const Owned master(DType::float32, {3}), weight(DType::bfloat16, {3}), rest(DType::uint16, {3});
  const Owned moment(DType::float32, {3}), scalars(DType::float64, {kUpdateScalars});
  expect_fault("split_master: weight is [2], not [3]",
               [&] { split_master(device.stream, master, Owned(DType::bfloat16, {2}), rest); });
  expect_fault("join_master: rest holds int32, not uint16",
               [&] { join_master(device.stream, weight, Owned(DType::int32, {3}), master); });
  expect_fault("join_master: master holds bfloat16, not float32",
               [&] { join_master(device.stream, weight, rest, weight); });
  const auto update = [&](const Tensor& p, const Tensor& low) {
    adamw(device.stream, {}, scalars,
          {{.gradient = moment, .weight = p, .rest = low, .first_moment = moment, .second_moment = moment}});
  };
  expect_fault("adamw: weight holds float32, not bfloat16", [&] { update(master, rest); });
  expect_fault("adamw: weight holds bfloat16, not float32", [&] { update(weight, {}); });
  expect_fault("adamw: rest is [2], not [3]", [&] { update(weight, Owned(DType::uint16, {2})); });
}

INSTANTIATE_TEST_SUITE_P(All, SplitMaster, ::testing::Values(Bodies::specification, Bodies::fast),
                         [](const auto& test) { return test.param == Bodies::fast ? "fast" : "specification"; });

}  // namespace
}  // namespace shiftron::kernel_testing
