// Edit distances counted by hand, and which name is suggested for a typing error.
#include "core/nearest_name.h"

#include <gtest/gtest.h>

namespace shiftron {
namespace {

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("hidden", "hiden"), 1);
  EXPECT_EQ(edit_distance("trian", "train"), 1);  // neighbours swapped
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(NearestName, FindsTheKeyMeant) {
  const std::vector<std::string> keys = {"model.hidden", "model.heads", "train.steps", "parallel.tp", "parallel.pp"};
  EXPECT_EQ(nearest_name("model.hiden", keys), "model.hidden");
  EXPECT_EQ(nearest_name("hiden", keys), "model.hidden");
  EXPECT_EQ(nearest_name("model.steps", keys), "train.steps");
  EXPECT_EQ(nearest_name("parallel.ttp", keys), "parallel.tp");
  EXPECT_EQ(nearest_name("something.else_entirely", keys), "");
  EXPECT_EQ(suggestion("model.head", keys), "; did you mean model.heads?");
  EXPECT_EQ(suggestion("quux.quuux", keys), "");
  EXPECT_EQ(suggestion(std::string(3 << 20, 'x'), keys), "");  // at once
}

}  // namespace
}  // namespace shiftron
