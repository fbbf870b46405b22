// Mlp against plain loops, with gate and up kept and recomputed.
#include "model/mlp.h"

#include "model/module_cases.h"

namespace shiftron::testing {
namespace {

ModuleCase mlp_case(bool recompute) {
  return {.make = [=](Rank& rank) -> Module {
            auto mlp = std::make_shared<Mlp>(rank.set, "mlp", rank.config, 0, recompute);
            auto saved = std::make_shared<Mlp::Saved>();
            return {[=](Run& run, const Tensor& x) {
                      const int64_t before = run.activations.used();
                      const Tensor y = sum_residual(run, mlp->forward(run, x, x, *saved, like(run.scratch, x)));
                      EXPECT_EQ(run.activations.used() == before, recompute) << "whether something is kept";
                      EXPECT_EQ(saved->gate_up.defined(), !recompute);
                      return y;
                    },
                    [=](Run& run, const Tensor& d_y, const Tensor& x) {
                      return with_residual(run, d_y, mlp->backward(run, d_y, x, *saved));
                    }};
          },
          .plain = [](const Weights& weights,
                      const Values& x) { return sum(x, plain_mlp(weights, "mlp", small_model(), x)); }};
}

TEST(Mlp, EqualsPlainLoops) {
  expect_plain(mlp_case(false));
}
TEST(Mlp, EqualsPlainLoopsWhereGateAndUpAreMadeAgain) {
  expect_plain(mlp_case(true));
}

TEST(Mlp, BothHaveTheSameBits) {
  for (const int tp : {1, 2}) {
    const Outcome kept = evaluate(mlp_case(false), tp), again = evaluate(mlp_case(true), tp);
    EXPECT_EQ(again.y, kept.y);
    EXPECT_EQ(again.d_x, kept.d_x);
    EXPECT_EQ(again.gradients, kept.gradients);
  }
}

}  // namespace
}  // namespace shiftron::testing
