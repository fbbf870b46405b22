// Gradients of the whole model against fourth-order differences of its loss, in float64, for every form of the shift.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

constexpr double kStep = 3e-4;
constexpr double kTolerance = 1e-6;
// The loss is about 4 and known to a few 1e-16, its difference quotient to about 1e-12: a gradient above the floor has
// its six digits. One below it is held to kTolerance * kFloor and does not count as checked.
constexpr double kFloor = 2e-5;
constexpr int64_t kElements = 4;   // of every tensor; of taps all
constexpr int64_t kAttempts = 60;  // to find that many above the floor

std::vector<NamedShift> shifts() {
  std::vector<NamedShift> shifts = all_shifts();
  shifts.push_back({"query_alone", {.query = 3, .key = 0, .value = 0}});
  shifts.push_back({"three_of_each", {.query = 3, .key = 3, .value = 3}});
  shifts.push_back({"two_and_one", {.query = 0, .key = 2, .value = 1, .form = ShiftForm::clamp}});
  shifts.push_back({"shift_crosses", {.query = 2, .key = 2, .value = 2, .reset = ShiftReset::never}});
  return shifts;
}

// Σ losses / nominal targets of step 1, and its gradient.
class WholeModel {
 public:
  explicit WholeModel(const RunConfig& config)
      : config_(config), world_(make_single_world()), rank_(config, *world_),
        samples_(random_samples(config.train.sequence_length, config.model.vocab)) {
    set_weights(parameters());
  }
  ParameterSet& parameters() { return rank_.trainer->engine().parameters(); }
  double loss() {
    const Totals totals;
    rank_.trainer->engine().evaluate(rank_.trainer->microbatches(), rank_.reader(1, samples_), totals.tensor());
    return totals.losses() / static_cast<double>(config_.train.global_batch * config_.train.sequence_length);
  }
  void accumulate() {
    const Totals totals;
    rank_.trainer->engine().accumulate_gradients(rank_.trainer->microbatches(), rank_.reader(1, samples_),
                                                 totals.tensor());
    const double nominal = static_cast<double>(config_.train.global_batch * config_.train.sequence_length);
    EXPECT_LT(totals.counted(), nominal);
    EXPECT_GT(totals.counted(), nominal / 2);
  }
  double difference(double& weight) {
    const double before = weight;
    const auto at = [&](double steps) {
      weight = before + steps * kStep;
      return loss();
    };
    const double near = at(1) - at(-1);
    const double far = at(2) - at(-2);
    weight = before;
    return (8 * near - far) / (12 * kStep);
  }

 private:
  RunConfig config_;
  std::unique_ptr<HostCommunicator> world_;
  RankTrainer rank_;
  SampleReader samples_;
};

using ShiftAndTied = std::tuple<NamedShift, bool>;
class FiniteDifferenceTest : public ::testing::TestWithParam<ShiftAndTied> {};

TEST_P(FiniteDifferenceTest, EveryTensorAgreesTo1e6) {
  const auto& [named, tied] = GetParam();
  RunConfig config = small_config(named.shift);
  config.model.tie_embeddings = tied;
  WholeModel model(config);
  model.accumulate();
  for (const auto& parameter : model.parameters().parameters()) {
    const std::string& name = parameter->spec.name;
    const Philox random(13, name);
    const int64_t count = parameter->weight.count();
    const bool taps = parameter->spec.group == DecayGroup::shift;
    int64_t checked = 0;
    for (int64_t i = 0; taps ? i < count : checked < kElements && i < kAttempts; ++i) {
      const int64_t index =
          taps ? i : static_cast<int64_t>(random.uniform(static_cast<uint64_t>(i)) * static_cast<double>(count));
      const double gradient = parameter->gradient.data<double>()[index];
      const double expected = model.difference(parameter->weight.data<double>()[index]);
      EXPECT_NEAR(gradient, expected, kTolerance * std::max(std::abs(expected), kFloor)) << name << " " << index;
      if (std::abs(expected) >= kFloor) ++checked;
    }
    // Gates and clamps may close: a clamped tap outside of [0, 1] has no gradient.
    const bool may_close = taps && named.shift.form != ShiftForm::free;
    EXPECT_GE(checked, may_close ? 1 : std::min(kElements, count)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FiniteDifferenceTest,
                         ::testing::Combine(::testing::ValuesIn(shifts()), ::testing::Bool()), [](const auto& test) {
                           return std::string(std::get<0>(test.param).name)
                               .append(std::get<1>(test.param) ? "_tied" : "_untied");
                         });

}  // namespace
}  // namespace shiftron::testing
