// RmsNorm against plain loops.
#include "model/norm.h"

#include "model/module_cases.h"

namespace shiftron::testing {
namespace {

// x + norm(x), as in a layer: backward adds to the existing gradient.
ModuleCase norm_case() {
  return {.make = [](Rank& rank) -> Module {
            auto norm = std::make_shared<RmsNorm>(rank.set, "norm", 6, rank.config.norm_epsilon, 0);
            auto saved = std::make_shared<RmsNorm::Saved>();
            return {[=](Run& run, const Tensor& x) {
                      const Tensor normed = norm->forward(run, x, *saved);
                      EXPECT_EQ(values_of(norm->output(run, *saved)), values_of(normed));
                      add(run.stream, x, normed, normed);
                      return normed;
                    },
                    [=](Run& run, const Tensor& d_y, const Tensor&) {
                      const Tensor d_x = run.scratch.allocate(d_y.dtype(), d_y.shape());
                      copy(run.stream, d_y, d_x);
                      norm->backward(run, d_y, *saved, InOut(d_x));
                      return d_x;
                    }};
          },
          .plain =
              [](const Weights& weights, const Values& x) {
                return sum(x, plain_norm(x, weights.at("norm.weight"), small_model().norm_epsilon));
              }};
}

TEST(RmsNorm, EqualsPlainLoops) {
  expect_plain(norm_case());
}

}  // namespace
}  // namespace shiftron::testing
