// Choices of several ranks, joined.
#include "kernels/libraries.h"

#include <gtest/gtest.h>

#include <map>

namespace shiftron {
namespace {

using Seconds = std::map<int64_t, double>;

// Products of so many rows, and attention of so many samples, by the seconds that they took.
std::string choices_of(const std::string& device, const Seconds& of_products, const Seconds& of_attention) {
  ProductChoices products{.device = device, .library = 3, .of = {}};
  AttentionChoices attention{.device = device, .library = 4, .of = {}};
  for (const auto& [m, seconds] : of_products) products.of[{.m = m}].seconds = seconds;
  for (const auto& [samples, seconds] : of_attention) attention.of[{.samples = samples}].seconds = seconds;
  return R"({"products": )" + to_json(products) + R"(, "attention": )" + to_json(attention) + "}";
}

TEST(JoinedChoices, AreOfTheFirstThatHasAShapeOnTheFirstsDevice) {
  const std::string joined = joined_choices(
      {choices_of("one", {{1, 0.5}, {2, 0.5}}, {{1, 0.5}}), choices_of("other", {{1, 1}, {2, 1}, {3, 1}}, {{2, 1}}),
       choices_of("one", {{2, 2}, {4, 2}}, {{1, 2}, {2, 2}}), choices_of("one", {{1, 3}, {4, 3}}, {{2, 3}, {3, 3}})});
  EXPECT_EQ(joined, joined_choices({choices_of("one", {{1, 0.5}, {2, 0.5}, {4, 2}}, {{1, 0.5}, {2, 2}, {3, 3}})}));
  EXPECT_NE(joined.find("\"seconds\": 0.5"), std::string::npos);
}

TEST(JoinedChoices, AreNoneOnACpu) {
  EXPECT_EQ(joined_choices({"", ""}), "");
}

}  // namespace
}  // namespace shiftron
