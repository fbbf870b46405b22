// How many kernels of our own a layer launches: each costs a few microseconds of host CPU time.
#include <gtest/gtest.h>

#include <numeric>

#include "cuda/device_training.h"
#include "cuda/processor.h"

namespace shiftron::testing {
namespace {

using Counts = std::map<std::string, int64_t>;

// Launched by the update, once for the taps of each shift.
bool of_update(const std::string& name) {
  return name.starts_with("sum_columns");
}

struct Launched {
  Counts forward, step;
};

// By an evaluation, and by a step, of one microbatch each.
Launched launched(int layers) {
  RunConfig config = small_config({.query = 0, .key = 1, .value = 1}, Precision::bf16);
  config.model.layers = layers;
  config.model.hidden = 32;  // heads as cuDNN takes them
  config.model.head_dim = 8;
  config.train.sequence_length = 16;
  config.train.global_batch = config.train.micro_batch;
  config.device.kind = DeviceChoice::cuda;
  Launched result;
  run_thread_ranks(1, [&](HostCommunicator& world) {
    Ledger ledger;
    DeviceRank rank(config, world, ledger);
    rank.step(1);  // the first one also makes what is kept
    machine::clear_launches();
    rank.trainer->evaluate(1, rank.reader(1));
    result.forward = machine::launches();
    machine::clear_launches();
    rank.step(2);
    result.step = machine::launches();
  });
  return result;
}

// What one more layer adds.
Counts difference(const Counts& more, const Counts& fewer) {
  Counts found;
  for (const auto& [name, count] : more) {
    const auto before = fewer.find(name);
    const int64_t added = count - (before == fewer.end() ? 0 : before->second);
    if (added != 0 && !of_update(name)) found[name] = added;
  }
  return found;
}

int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0},
                         [](int64_t sum, const auto& of) { return sum + of.second; });
}
std::string text(const Counts& counts) {
  std::string result;
  for (const auto& [name, count] : counts) result += "\n  " + std::to_string(count) + " " + name;
  return result;
}

TEST(Launches, OfALayerAreFew) {
  const Launched two = launched(2), three = launched(3);
  const Counts forward = difference(three.forward, two.forward);
  Counts backward = difference(three.step, two.step);
  for (const auto& [name, count] : forward) backward[name] -= count;
  RecordProperty("forward", text(forward));
  RecordProperty("backward", text(backward));
  EXPECT_GE(total(forward), 4) << text(forward);  // two norms, the shift, SwiGLU
  EXPECT_LE(total(forward), 5) << text(forward);  // of which none adds a residual: products do
  EXPECT_GE(total(backward), 7) << text(backward);
  EXPECT_LE(total(backward), 12) << text(backward);
  // Query, key and value go together; backward makes them again.
  EXPECT_EQ(forward.at("shift_rope_forward"), 1);
  EXPECT_EQ(backward.at("shift_rope_forward"), 1);
  EXPECT_EQ(backward.at("shift_rope_backward"), 1);
  EXPECT_EQ(backward.at("shift_rope_backward: taps"), 1);
}

// One for the weights and one for the parameters that are kept precise, and two for all sums of squares; of 20 layers
// three and two, and three, as the parameters of a kernel hold no more.
TEST(Launches, OfAnUpdateAreThoseOfItsBuckets) {
  const Launched few = launched(2), many = launched(20);
  EXPECT_EQ(few.step.at("adamw"), 2);
  EXPECT_EQ(few.step.at("sum_of_squares"), 2);
  EXPECT_EQ(many.step.at("adamw"), 5);
  EXPECT_EQ(many.step.at("sum_of_squares"), 3);
}

}  // namespace
}  // namespace shiftron::testing
