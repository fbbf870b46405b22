// Philox4x32-10 against its published vectors, and the numbers drawn with it.
#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace shiftron {
namespace {

using Block = std::array<uint32_t, 4>;

// The name whose hash is 0 in neither half is mixed into the upper counter words: undo it through `high`.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  return hash;
}
Block raw_block(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  return Philox(key, "any").block(counter_low, counter_high ^ hash_of("any"));
}

// Known-answer vectors that Salmon et al. publish with their Random123 library.
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(raw_block(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(raw_block(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(raw_block(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DependsOnSeedNameAndIndexAlone) {
  const Philox a(1, "weights");
  EXPECT_EQ(a.normal(12345), Philox(1, "weights").normal(12345));
  EXPECT_NE(a.block(0), Philox(2, "weights").block(0));
  EXPECT_NE(a.block(0), Philox(1, "order").block(0));
  EXPECT_NE(a.block(0), a.block(1));
  EXPECT_NE(a.block(0), a.block(0, 1));
  EXPECT_NE(a.uniform(0), a.uniform(1));  // of one block
}

// Mean and variance within five standard errors of 1/2, 1/12 and 0, 1.
TEST(Philox, MomentsOfUniformAndNormal) {
  const Philox philox(3, "moments");
  constexpr int kCount = 100000;
  double uniform = 0, uniform_squares = 0, normal = 0, normal_squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = philox.uniform(i);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    const double n = philox.normal(i);
    uniform += u;
    uniform_squares += (u - 0.5) * (u - 0.5);
    normal += n;
    normal_squares += n * n;
  }
  const double error = 5 / std::sqrt(kCount);
  EXPECT_NEAR(uniform / kCount, 0.5, error * std::sqrt(1.0 / 12));
  EXPECT_NEAR(uniform_squares / kCount, 1.0 / 12, error * std::sqrt(1.0 / 180));
  EXPECT_NEAR(normal / kCount, 0, error);
  EXPECT_NEAR(normal_squares / kCount, 1, error * std::sqrt(2.0));
}

}  // namespace
}  // namespace shiftron
