// Compares training steps of a small model on the device with the same steps by the CPU's plain loops.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/philox.h"
#include "evaluate/self_test_parts.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

constexpr int64_t kSteps = 3;
constexpr const char* kTrainingReason =
    "training: loss k u, gradient norm 10 k u, u = unit roundoff of the activations, k = 32 in fp32 (a loss is a mean "
    "of rows through all layers), 2 in bf16 (roundings of single activations average out); step s includes the s − 1 "
    "updates before it; compared with the CPU's plain loops in the same precision";

// Random tokens, in documents of five rows.
void read_samples(const RunConfig& config, int64_t first, HostBatch& batch) {
  const int64_t length = config.train.sequence_length;
  for (int64_t i = 0; i < config.train.micro_batch * length; ++i) {
    const Philox random(3, "sample " + std::to_string(first + i / length));
    const auto token = [&](int64_t t) {
      return static_cast<int32_t>(random.uniform(static_cast<uint64_t>(t)) * static_cast<double>(config.model.vocab));
    };
    const auto at = static_cast<size_t>(i);
    batch.ids[at] = token(i % length);
    batch.targets[at] = i % 5 == 4 ? -1 : token(i % length + 1);
    batch.document_starts[at] = i % length == 0 || i % 5 == 0;
  }
}

}  // namespace

RunConfig self_test_config(SelfTestSize size, Precision precision) {
  const bool full = size == SelfTestSize::full;
  RunConfig config;
  config.model = {.layers = 2,
                  .hidden = full ? 256 : 32,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = full ? 64 : 8,
                  .ffn = full ? 344 : 24,
                  .vocab = full ? 509 : 37,
                  .init_std = full ? 0.05 : 0.3};
  config.train.steps = kSteps;
  config.train.global_batch = 4;
  config.train.micro_batch = 2;
  config.train.sequence_length = full ? 64 : 16;
  config.train.precision = precision;
  config.optimizer.learning_rate = 1e-2;
  return config;
}

TrainingTrace train_briefly(const RunConfig& asked, Stream& stream) {
  RunConfig config = asked;
  config.device.kind = stream.device == DeviceKind::cuda ? DeviceChoice::cuda : DeviceChoice::cpu;
  const auto world = make_single_world();
  const ParallelLayout layout;
  Ledger planned;
  const MemoryPlan plan = plan_memory(config, layout, 0, stream.cpu.threads, planned);
  Trainer trainer(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config), stream.device),
                  stream, plan);
  trainer.engine().parameters().initialise(5);
  TrainingTrace trace;
  for (int64_t step = 1; step <= config.train.steps; ++step) {
    const auto read = [&](int index, HostBatch& batch) {
      read_samples(config, (step - 1) * config.train.global_batch + index * config.train.micro_batch, batch);
    };
    trainer.step(step, read, false);
    const StepResult result = trainer.result(step);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.gradient_norm);
  }
  return trace;
}

void compare_training(const TrainingTrace& found, const TrainingTrace& expected, Precision precision,
                      SelfTestReport& report) {
  const bool narrow = precision == Precision::bf16;
  const double unit = narrow ? 2 * 0x1p-8 : 32 * 0x1p-24;
  const auto compare = [&](const char* name, const std::vector<double>& some, const std::vector<double>& others,
                           double bound) {
    SelfCheck check{.section = "training", .name = name, .type = narrow ? "bf16" : "fp32", .reason = kTrainingReason};
    for (size_t i = 0; i < others.size(); ++i) {
      const double value = i < some.size() ? some[i] : std::numeric_limits<double>::quiet_NaN();
      check.add(fmt::format("step {}: {:.7g}, expected {:.7g}", i + 1, value, others[i]),
                std::abs(value - others[i]) / std::abs(others[i]), bound);
    }
    report.checks.push_back(check);
  };
  compare("loss", found.losses, expected.losses, unit);
  compare("gradient norm", found.norms, expected.norms, 10 * unit);
}

void check_training(Stream& stream, SelfTestSize size, SelfTestReport& report) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const RunConfig config = self_test_config(size, precision);
    Ledger ledger;
    Stream plain{.device = DeviceKind::cpu,
                 .ledger = &ledger,
                 .cpu = {.threads = stream.cpu.threads, .bodies = Bodies::specification}};
    const TrainingTrace expected = train_briefly(config, plain);
    compare_training(train_briefly(config, stream), expected, precision, report);
  }
}

}  // namespace shiftron
