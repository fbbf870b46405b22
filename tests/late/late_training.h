// Training on streams whose queues a Machine runs when it chooses, and the same at once.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "core/event.h"
#include "machine/scheduler.h"
#include "train/small_model.h"
#include "train/training_harness.h"

namespace shiftron::testing {

inline const char* name_of(Order order) {
  switch (order) {
    case Order::eager: return "eager";
    case Order::random: return "random";
    case Order::late: return "late";
    case Order::uneven: return "uneven";
  }
  return "";
}

inline RunConfig late_config(Precision precision = Precision::fp64) {
  RunConfig config;
  config.model = {.layers = 3, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 20, .vocab = 23,
                  .init_std = 0.1, .shift = {.query = 1, .key = 1, .value = 2, .form = ShiftForm::clamp}};
  config.train.steps = 5;
  config.train.global_batch = 8;
  config.train.sequence_length = 8;
  config.train.precision = precision;
  config.optimizer.learning_rate = 1e-2;
  config.evaluation.every = 3;
  return config;
}

struct LateCase {
  std::string name;
  int tp = 1, pp = 1, dp = 1;
  PipelineKind pipeline = PipelineKind::one_forward_one_backward;
  RecomputeKind recompute = RecomputeKind::none;
  std::optional<Schedule> schedule{};
  int zero = 0;
  int64_t bucket_elements = 0;

  int ranks() const { return tp * pp * dp; }
  RunConfig config(Precision precision = Precision::fp64) const {
    RunConfig made = late_config(precision);
    made.parallel.tp = tp;
    made.parallel.pp = pp;
    made.parallel.pipeline = pipeline;
    made.parallel.recompute = recompute;
    made.parallel.zero = zero;
    made.parallel.bucket_elements = bucket_elements;
    return made;
  }
};

struct LateRun {
  std::vector<double> loss, norm, evaluation;
  TensorMap weights;
  bool operator==(const LateRun&) const = default;
};

// One rank trains as a run does: each result is read while the next step is under way, but before an evaluation.
inline void train_rank(RankTrainer& rank, const SampleReader& read, LateRun& run) {
  Trainer& trainer = *rank.trainer;
  const auto report_finished_step = [&](int64_t step) {
    const StepResult result = trainer.result(step);
    run.loss.push_back(result.loss);
    run.norm.push_back(result.gradient_norm);
  };
  int64_t unread = 0;
  for (int64_t step = 1; step <= rank.config.train.steps; ++step) {
    trainer.step(step, rank.reader(step, read), false);
    if (unread > 0) report_finished_step(unread);
    unread = step;
    if (step % rank.config.evaluation.every != 0) continue;
    report_finished_step(step);
    unread = 0;
    run.evaluation.push_back(trainer.evaluate(2, rank.reader(100, read))->all.loss);
  }
  if (unread > 0) report_finished_step(unread);
}

// Without `machine` everything runs at once. Results are the same on every rank except the weights, which are
// collected.
inline LateRun train_late(const LateCase& c, const RunConfig& config, Machine* machine) {
  LateRun whole;
  std::mutex mutex;
  run_thread_ranks(c.ranks(), [&](HostCommunicator& world) {
    const std::string name = "compute of rank " + std::to_string(world.rank());
    const std::unique_ptr<Queue> queue = machine != nullptr ? machine->make_queue(name) : nullptr;
    RankTrainer rank(config, world, {.queue = queue.get(), .schedule = c.schedule});
    LateRun run;
    train_rank(rank, random_samples(config.train.sequence_length, config.model.vocab), run);
    collect(rank.trainer->engine().parameters(), masters_of, whole.weights, mutex);
    if (world.rank() != 0) return;
    whole.loss = run.loss;
    whole.norm = run.norm;
    whole.evaluation = run.evaluation;
  });
  return whole;
}

}  // namespace shiftron::testing
