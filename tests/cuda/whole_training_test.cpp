// A training run on a GPU or the emulator, compared with the same on the CPU and with itself: gradients of a whole
// model, steps that depend on each other, evaluation, resumes from one device on the other.
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"
#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "core/log.h"
#include "cuda/device_training.h"
#include "scratch.h"

namespace shiftron::testing {
namespace {

constexpr DeviceChoice kCpu = DeviceChoice::cpu, kCuda = DeviceChoice::cuda;

// How far a value of a whole model may be from the same value with sums in another order, relative to its norm, after
// `depth` layers forward or backward. A layer multiplies the difference that it gets by C and adds k, which makes
// k (C^depth − 1) / (C − 1), below k C^depth / (C − 1).
//   k: eight tensors in a layer are sums of up to n terms, each with √n roundings of float32 (of random sign); rounded
//   to
//      bfloat16, they differ by what two independent roundings do, √(2/3) · 2⁻⁹ in the mean.
//   C: √2. The residual stream's variance doubles if branch and stream are the same.
double bound_behind(int depth, const RunConfig& config) {
  const auto terms = static_cast<double>(config.train.micro_batch * config.train.sequence_length);
  const bool narrow = config.train.precision == Precision::bf16;
  const double k = 8 * (narrow ? std::sqrt(2.0 / 3) * 0x1p-9 : std::sqrt(terms) * 0x1p-24), growth = std::sqrt(2.0);
  return k * (std::pow(growth, depth) - 1) / (growth - 1);
}
// Losses come after layers and head, gradients after both of these twice.
double loss_bound(const RunConfig& config) {
  return bound_behind(static_cast<int>(config.model.layers) + 1, config);
}
double gradient_bound(const RunConfig& config) {
  return bound_behind(2 * (static_cast<int>(config.model.layers) + 1), config);
}

// An update that is linear in the gradient: where epsilon outweighs the root, masters differ as gradients do.
RunConfig linear_config(const ShiftConfig& shift, Precision precision) {
  RunConfig config = small_config(shift, precision);
  config.optimizer.epsilon = 1;
  config.optimizer.learning_rate = 1;
  return config;
}

struct Course {
  std::vector<double> losses, norms;
  double held_out = 0;
  TensorMap first, changes;  // moments after the first step; masters at the end minus those at the start
  bool operator==(const Course&) const = default;
};

Course course_of(const RunConfig& config, int64_t steps) {
  Course course;
  std::mutex mutex;
  const auto world = make_single_world();
  Ledger ledger;
  DeviceRank rank(config, *world, ledger);
  TensorMap before;
  collect(rank.parameters(), masters_of, before, mutex);
  for (int64_t step = 1; step <= steps; ++step) {
    const StepResult result = rank.step(step);
    course.losses.push_back(result.loss);
    course.norms.push_back(result.gradient_norm);
    if (step == 1) collect(rank.parameters(), first_moments_of, course.first, mutex);
  }
  course.held_out = rank.trainer->evaluate(2, rank.reader(100))->all.loss;
  collect(rank.parameters(), masters_of, course.changes, mutex);
  for (auto& [name, values] : course.changes) {
    for (size_t i = 0; i < values.size(); ++i) values[i] -= before.at(name)[i];
  }
  return course;
}

void expect_near(double found, double expected, double bound, const std::string& what) {
  EXPECT_LE(std::abs(found - expected), bound * std::abs(expected))
      << what << ": " << found << ", on the CPU " << expected;
}

void expect_tensors_near(const TensorMap& found, const TensorMap& expected, double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_LE(relative_difference(found.at(name), values), bound) << name;
  }
}

class WholeTraining : public ::testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, WholeTraining, ::testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& precision) { return std::string(to_string(precision.param)); });

// The first moments after one step are the gradients, all scaled by the same factor.
TEST_P(WholeTraining, GradientsAreThoseOfTheCpu) {
  for (const NamedShift& named : all_shifts()) {
    SCOPED_TRACE(named.name);
    const RunConfig config = small_config(named.shift, GetParam());
    const Course expected = course_of(on_device(config, kCpu), 1), found = course_of(on_device(config, kCuda), 1);
    expect_tensors_near(found.first, expected.first, gradient_bound(config));
    expect_near(found.norms[0], expected.norms[0], gradient_bound(config), "norm");
  }
}

// Updates are sums of gradients, so both have the bound of one gradient.
void expect_steps_of_the_cpu(const RunConfig& config, int64_t steps) {
  const Course expected = course_of(on_device(config, kCpu), steps), found = course_of(on_device(config, kCuda), steps);
  EXPECT_LT(expected.losses.back(), 0.9 * expected.losses.front());
  for (size_t step = 0; step < static_cast<size_t>(steps); ++step) {
    const std::string of_step = " of step " + std::to_string(step + 1);
    expect_near(found.losses[step], expected.losses[step], loss_bound(config), "loss" + of_step);
    expect_near(found.norms[step], expected.norms[step], gradient_bound(config), "norm" + of_step);
  }
  expect_near(found.held_out, expected.held_out, loss_bound(config), "loss of an evaluation");
  expect_tensors_near(found.changes, expected.changes, gradient_bound(config));
}

TEST_P(WholeTraining, FiveStepsAreThoseOfTheCpu) {
  for (const NamedShift& named : all_shifts()) {
    if (named.shift.form == ShiftForm::clamp) continue;  // a tap at its bend has a gradient or none: there is no bound
    SCOPED_TRACE(named.name);
    expect_steps_of_the_cpu(linear_config(named.shift, GetParam()), 5);
  }
}

TEST_P(WholeTraining, TwentyStepsAreThoseOfTheCpu) {
  expect_steps_of_the_cpu(linear_config(all_shifts()[1].shift, GetParam()), 20);
}

TEST_P(WholeTraining, Repeats) {
  const RunConfig config = on_device(small_config(all_shifts()[2].shift, GetParam()), kCuda);
  EXPECT_TRUE(course_of(config, 2) == course_of(config, 2));
}

// ---- resumes --------------------------------------------------------------------------------------------------------
// Resumes after step `from` (0: starts), trains to step `to` and saves it; if `to` = `from`, saves the step again
// elsewhere.
void run_and_save(const RunConfig& config, const std::string& source, int64_t from, int64_t to,
                  const std::string& target) {
  const auto world = make_single_world();
  Ledger ledger;
  DeviceRank rank(config, *world, ledger);
  Log log;
  if (from > 0) {
    const auto content = load_checkpoint(source, from, rank.parameters(), *world, log,
                                         {.gather = [&] { rank.trainer->engine().gather_all(); }});
    ASSERT_TRUE(content) << "no step " << from;
    rank.trainer->restore(saved_state(content->state_json, source).trainer);
  }
  for (int64_t step = from + 1; step <= to; ++step) rank.step(step);
  SavedState state;
  state.trainer = rank.trainer->state();
  const CheckpointContent content{.step = to,
                                  .configuration = "",
                                  .state_json = to_json(state),
                                  .tokenizer = {{"tokenizer.model", "model"}},
                                  .data_fingerprint = "",
                                  .code_version = ""};
  ASSERT_TRUE(save_checkpoint(target, content, rank.parameters(), *world, {.keep = 9}, log).saved);
}

std::string step_of(const Scratch& scratch, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "/step-%08d", static_cast<int>(step));
  return scratch.path() + name;
}

TEST_P(WholeTraining, CheckpointsPassThroughTheDeviceUnchanged) {
  const RunConfig config = small_config(all_shifts()[1].shift, GetParam());
  const Scratch first, second, third;
  run_and_save(on_device(config, kCpu), "", 0, 2, first.path());
  run_and_save(on_device(config, kCuda), first.path(), 2, 2, second.path());
  run_and_save(on_device(config, kCpu), second.path(), 2, 2, third.path());
  EXPECT_TRUE(diff_steps(step_of(first, 2), step_of(second, 2)).equal());
  EXPECT_TRUE(diff_steps(step_of(first, 2), step_of(third, 2)).equal());
}

TEST_P(WholeTraining, ResumesOnTheDeviceHaveTheSameBits) {
  const RunConfig config = on_device(small_config(all_shifts()[1].shift, GetParam()), kCuda);
  const Scratch whole, parts;
  run_and_save(config, "", 0, 4, whole.path());
  run_and_save(config, "", 0, 2, parts.path());
  run_and_save(config, parts.path(), 2, 4, parts.path());
  EXPECT_TRUE(diff_steps(step_of(whole, 4), step_of(parts, 4)).equal());
}

TEST_P(WholeTraining, ResumesFromCpuToDeviceAndBack) {
  const RunConfig config = linear_config(all_shifts()[2].shift, GetParam());
  const Scratch cpu, mixed;
  run_and_save(on_device(config, kCpu), "", 0, 6, cpu.path());
  run_and_save(on_device(config, kCpu), "", 0, 2, mixed.path());
  run_and_save(on_device(config, kCuda), mixed.path(), 2, 4, mixed.path());
  run_and_save(on_device(config, kCpu), mixed.path(), 4, 6, mixed.path());
  const StepDifference difference = diff_steps(step_of(cpu, 6), step_of(mixed, 6));
  const double bound = gradient_bound(config);  // weights differ by less than their updates
  for (const TensorDifference& tensor : difference.tensors) {
    if (!tensor.path.starts_with("parameters/")) continue;
    EXPECT_EQ(tensor.mismatch, "") << tensor.path;
    EXPECT_LE(tensor.relative_l2, bound) << tensor.path;
  }
  EXPECT_FALSE(difference.equal());  // the device had its part
}

}  // namespace
}  // namespace shiftron::testing
