// Signs of an overflow that RMS norms hide.
#include "run/overflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace shiftron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kGroups = {"embedding", "layers.0", "final_norm", "head"};

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 1;
  model.hidden = 4;
  model.heads = 9;
  model.vocab = 384;
  return model;
}

StepResult step_with(double loss, double norm, std::vector<double> group_norms) {
  StepResult result;
  result.loss = loss;
  result.gradient_norm = norm;
  result.counted = 7;
  result.group_norms = std::move(group_norms);
  return result;
}

TEST(Overflow, LogitsAreEqualAtTheirLossAlone) {
  EXPECT_TRUE(are_logits_equal(std::log(384), 384));
  EXPECT_TRUE(are_logits_equal(static_cast<float>(std::log(128256)), 128256));
  EXPECT_FALSE(are_logits_equal(std::log(384) + 1e-4, 384));  // of small logits
  EXPECT_FALSE(are_logits_equal(std::nan(""), 384));
  EXPECT_FALSE(are_logits_equal(0, 1));  // there is nothing to predict
}

TEST(Overflow, AGradientOfZeroIsNamed) {
  ModelConfig model = small_model();
  const std::string all = zero_gradient_warning(3, step_with(std::log(384), 0, {0, 0, 0, 0}), kGroups, model);
  EXPECT_THAT(all, HasSubstr("step 3: the gradient of all parameters is exactly 0 although 7 targets were counted"));
  EXPECT_THAT(all, HasSubstr(kLogitsAreEqual));
  const std::string some = zero_gradient_warning(3, step_with(2, 5, {3, 0, 4, 1e-30}), kGroups, model);
  EXPECT_THAT(some, HasSubstr("the gradient of layers.0 is exactly 0"));
  EXPECT_THAT(some, Not(HasSubstr(kLogitsAreEqual)));
  EXPECT_EQ(zero_gradient_warning(3, step_with(2, 5, {3, 1, 4, 1}), kGroups, model), "");
  EXPECT_NE(zero_gradient_warning(3, step_with(2, 5, {3, 1, 4, 0}), kGroups, model), "");
  model.tie_embeddings = true;  // then the head has no parameters of its own
  EXPECT_EQ(zero_gradient_warning(3, step_with(2, 5, {3, 1, 4, 0}), kGroups, model), "");
  StepResult skipped = step_with(std::nan(""), 0, {0, 0, 0, 0});
  skipped.skipped = true;
  EXPECT_EQ(zero_gradient_warning(3, skipped, kGroups, model), "");
  StepResult empty = step_with(0, 0, {0, 0, 0, 0});
  empty.counted = 0;
  EXPECT_EQ(zero_gradient_warning(3, empty, kGroups, model), "");
}

// Tensors of one value each, added row by row.
TEST(Overflow, ActivationsAreBoundByTheWeights) {
  WeightSizes sizes;
  const auto add = [&](const std::string& name, Shape shape, float value) {
    const ManifestTensor tensor{.name = name, .shape = shape};
    const std::vector<float> row(static_cast<size_t>(shape.count() / shape[0]), value);
    for (int64_t i = 0; i < shape[0]; ++i) sizes.add(tensor, row.data(), 1);
  };
  add("embedding.weight", {384, 4}, -3);             // rows of length 6
  add("layers.0.attention_norm.weight", {4}, -0.5);  // its output: at most √4 · 0.5 = 1
  add("layers.0.attention.value.weight", {1, 2, 4}, 2);
  add("layers.0.attention.out.weight", {4, 9, 2}, 1);
  add("layers.0.mlp_norm.weight", {4}, 1);      // 2
  add("layers.0.mlp.gate.weight", {16, 4}, 1);  // rows of length 2
  add("layers.0.mlp.up.weight", {16, 4}, 1);    // 8
  add("layers.0.mlp.down.weight", {4, 16}, 2);  // 16
  const double attention = std::sqrt(8 * 4) * 1 * std::sqrt(9) * std::sqrt(72);
  const double mlp = 2 * 2 * 8 * 2 * 16;
  EXPECT_DOUBLE_EQ(sizes.longest_activation(small_model()), 6 + attention + mlp);
  add("layers.0.attention.shift_value", {1, 2}, 3);  // a sum of two values, each three times
  EXPECT_DOUBLE_EQ(sizes.longest_activation(small_model()), 6 + attention * 2 * std::sqrt(18) + mlp);
  EXPECT_EQ(overflow_warning(1.7e19, "look"), "");
  EXPECT_THAT(overflow_warning(2e19, "look"), HasSubstr("activations may reach 2.0e+19"));
}

}  // namespace
}  // namespace shiftron
