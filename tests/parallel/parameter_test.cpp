// Parameters in memory: masters whole or in two halves, their order, and the memory that they take.
#include "parallel/parameter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shiftron {
namespace {

// Two matrices side by side, a norm between them and a third matrix.
struct Fixture {
  Ledger ledger;
  ParameterSet set;
  Parameter *gate, *up, *norm, *down;

  explicit Fixture(DType activation, bool training = true) : set({}, {}, {activation, DType::float32}) {
    const auto declare = [&](const char* name, Shape shape, bool precise, bool adjacent) {
      ParameterSpec spec{.name = name, .shape = shape, .initial = init_normal(1), .keep_precise = precise};
      return set.declare(spec, adjacent);
    };
    gate = declare("gate", {5, 7}, false, false);
    up = declare("up", {4, 7}, false, true);
    norm = declare("norm", {7}, true, false);
    down = declare("down", {7, 9}, false, false);
    set.allocate(Stream{.ledger = &ledger}, training);
    set.initialise(1);
  }
  std::vector<float> masters(const Parameter& parameter) const {
    return masters(parameter, 0, parameter.box.extent.count());
  }
  std::vector<float> masters(const Parameter& parameter, int64_t first, int64_t count) const {
    std::vector<std::byte> room;
    const auto* values = static_cast<const float*>(set.read(parameter, ParameterState::master, first, count, room));
    return {values, values + count};
  }
};

TEST(Parameter, MastersInTwoHalvesStartAsWholeOnes) {
  const Fixture whole(DType::float32), halves(DType::bfloat16);
  for (Parameter* Fixture::*one : {&Fixture::gate, &Fixture::up, &Fixture::norm, &Fixture::down}) {
    const Parameter &a = *(whole.*one), &b = *(halves.*one);
    EXPECT_FALSE(a.rest.defined());
    EXPECT_EQ(b.rest.defined(), b.spec.name != "norm");
    EXPECT_EQ(whole.masters(a), halves.masters(b)) << a.spec.name;
    EXPECT_NE(whole.masters(a).back(), 0);
    if (!b.rest.defined()) continue;
    for (int64_t i = 0; i < b.weight.count(); ++i) {
      const float master = a.weight.data<float>()[i];
      const uint32_t bits = uint32_t{b.weight.data<bfloat16>()[i].bits} << 16;
      EXPECT_NEAR(std::bit_cast<float>(bits), master, std::abs(master) / 256) << a.spec.name << " " << i;
    }
  }
}

TEST(Parameter, RangesOfMastersAreReadAndWritten) {
  for (const DType activation : {DType::float32, DType::bfloat16}) {
    Fixture fixture(activation);
    std::vector<float> expected = fixture.masters(*fixture.up);
    const std::vector<float> before = fixture.masters(*fixture.gate), behind = fixture.masters(*fixture.down);
    const float some[] = {1.0f + 0x1p-20f, -3.0f - 0x1p-8f, 0.1f};
    fixture.set.write(*fixture.up, ParameterState::master, 5, 3, some);
    std::copy_n(some, 3, expected.begin() + 5);
    EXPECT_EQ(fixture.masters(*fixture.up), expected);
    const std::vector<float> middle = fixture.masters(*fixture.up, 6, 2);
    EXPECT_EQ(middle[0], some[1]);
    EXPECT_EQ(middle[1], some[2]);
    EXPECT_EQ(fixture.masters(*fixture.gate), before);
    EXPECT_EQ(fixture.masters(*fixture.down), behind);
    EXPECT_THROW(fixture.set.write(*fixture.up, ParameterState::master, 27, 2, some), Error);
    EXPECT_EQ(fixture.ledger.kernels().size(), 0u);
  }
}

TEST(Parameter, OneProductServesWhatLiesSideBySide) {
  for (const DType activation : {DType::float32, DType::bfloat16}) {
    const Fixture fixture(activation);
    const Tensor joined = fixture.set.joined({fixture.gate, fixture.up}, &Parameter::weight, 7);
    EXPECT_EQ(joined.shape(), (Shape{9, 7}));
    EXPECT_EQ(joined.rows(5, 4).raw(), fixture.up->weight.raw());
    EXPECT_EQ(fixture.set.joined({fixture.gate, fixture.up}, &Parameter::gradient, 7).rows(5, 4).raw(),
              fixture.up->gradient.raw());
    EXPECT_THROW((void)fixture.set.joined({fixture.gate, fixture.norm}, &Parameter::weight, 7), Error);
    EXPECT_THROW((void)fixture.set.joined({fixture.up, fixture.down}, &Parameter::weight, 7), Error);
  }
}

// Bytes of a parameter: 4 + 12, whether its master is whole or in two halves of 2.
TEST(Parameter, HalvesTakeTheMemoryOfWholeMasters) {
  const auto memory = [](DType activation, bool training) {
    Fixture fixture(activation, training);
    return fixture.ledger.memory();
  };
  // 63 elements fill one group of 64, the norm another, 63 a third: buffers are whole multiples of 256 bytes.
  const std::map<std::string, int64_t, std::less<>> whole = {
      {"parameters", 768}, {"gradients", 768}, {"optimizer", 2 * 768}};
  const auto of_whole = memory(DType::float32, true), of_halves = memory(DType::bfloat16, true);
  for (const auto& [category, bytes] : whole) {
    EXPECT_EQ(of_whole.at(category), bytes) << category;
    EXPECT_EQ(of_halves.at(category), bytes) << category;
  }
  EXPECT_EQ(memory(DType::bfloat16, false).at("parameters"), 768);
}

}  // namespace
}  // namespace shiftron
