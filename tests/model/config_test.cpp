// Derived defaults, names of shift enumerations, and FLOPs compared with sums computed by hand.
#include "model/config.h"

#include <gtest/gtest.h>

namespace shiftron {
namespace {

TEST(ModelConfig, FillsInWhatFollows) {
  const ModelConfig full = with_defaults({.layers = 2, .hidden = 96, .heads = 6, .ffn = 256, .vocab = 100});
  EXPECT_EQ(full.kv_heads, 6);
  EXPECT_EQ(full.head_dim, 16);
  EXPECT_EQ(with_defaults({.hidden = 96, .heads = 6, .kv_heads = 2, .head_dim = 32}).head_dim, 32);
  EXPECT_EQ(with_defaults({.hidden = 96, .heads = 6, .kv_heads = 2}).kv_heads, 2);
  EXPECT_EQ(with_defaults({.hidden = 100, .heads = 6}).head_dim, 0);  // does not divide
  EXPECT_EQ(with_defaults({}).head_dim, 0);
}

TEST(ModelConfig, FlopsPerToken) {
  // Per layer: query and out 2 * 8 * 8, key and value 2 * 8 * 4, feed-forward 3 * 8 * 16: 576; head 10 * 8 = 80.
  // 6 * (2 * 576 + 80) = 7392; attention 6 * 2 layers * 8 * 32 = 3072.
  const ModelConfig small{.layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .head_dim = 2, .ffn = 16, .vocab = 10};
  EXPECT_EQ(model_flops(small, 1, 16), 7392 + 3072);
  ModelConfig tied = small;
  tied.tie_embeddings = true;  // the product with the head is still made
  EXPECT_EQ(model_flops(tied, 1, 16), 7392 + 3072);
  // 7 layers of 2,949,120 and a head of 4,194,304; 6 * 7 * 512 * 512 for attention.
  const ModelConfig middle{.layers = 7, .hidden = 512, .heads = 8, .kv_heads = 4, .ffn = 1408, .vocab = 8192};
  EXPECT_EQ(model_flops(middle, 100, 25600), 100 * (6 * (7 * 2949120.0 + 4194304) + 11010048));
}

// Head and layer of the small model above: 6 * 80 over 6 * 576 + 6 * 8 * 32.
TEST(ModelConfig, HeadInLayers) {
  const ModelConfig small{.layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .head_dim = 2, .ffn = 16, .vocab = 10};
  EXPECT_DOUBLE_EQ(head_in_layers(small, 32), 480.0 / (3456.0 + 1536.0));
}

TEST(ModelConfig, NamesOfEnumerations) {
  EXPECT_EQ(to_string(ShiftForm::project), "project");
  EXPECT_EQ(to_string(ShiftReset::automatic), "auto");
  EXPECT_EQ(from_string<ShiftInit>("identity"), ShiftInit::identity);
  EXPECT_EQ(from_string<ShiftRemainder>("current"), ShiftRemainder::current);
  EXPECT_EQ(from_string<ShiftForm>("Free"), std::nullopt);
  EXPECT_EQ(from_string<ShiftForm>(""), std::nullopt);
  for (const char* name : names_of(ShiftForm{})) EXPECT_EQ(to_string(*from_string<ShiftForm>(name)), name);
}

}  // namespace
}  // namespace shiftron
