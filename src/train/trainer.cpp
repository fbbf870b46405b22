// The training step and what it reports.
#include "train/trainer.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "parallel/gradient_reduction.h"
#include "train/learning_rate.h"

namespace shiftron {
namespace {

constexpr int kStreams = 3;
constexpr int kMostTaps = 4;
constexpr std::array<const char*, kStreams> kStreamNames = {"query", "key", "value"};

int previous_of(const ShiftConfig& shift, int stream) {
  return stream == 0 ? shift.query : stream == 1 ? shift.key : shift.value;
}

}  // namespace

Trainer::Trainer(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan)
    : config_(config),
      stream_(stream),
      engine_(config, std::move(groups), stream, plan, true),
      tap_scratch_(stream.device, "taps", plan, *stream.ledger, "scratch"),
      microbatches_(microbatches_of_step(config, engine_.groups().layout)) {
  const int64_t count = 2 * sum_count() + 2 + kUpdateCounters + kUpdateScalars + 2 * kUpdateResults;
  scalars_ = Buffer(stream.device, count * size_of(DType::float64), *stream.ledger, "scalars");
  int64_t offset = 0;
  const auto take = [&](int64_t elements) {
    offset += elements;
    return scalars_.tensor((offset - elements) * size_of(DType::float64), DType::float64, {elements});
  };
  sums_ = take(2 * sum_count());
  totals_ = take(2);
  counters_ = take(kUpdateCounters);
  update_ = take(kUpdateScalars + 2 * kUpdateResults);
}

int64_t Trainer::attended_slot() const {
  return kFirstSquare + groups() + config_.model.layers * kStreams * kMostTaps;
}

Tensor Trainer::sums_of(int64_t step) const { return sums_.rows((step % 2) * sum_count(), sum_count()); }

Tensor Trainer::result_of(int64_t step) const {
  return update_.rows(kUpdateScalars + (step % 2) * kUpdateResults, kUpdateResults);
}

int64_t Trainer::group_of(const ParameterSpec& spec) const {
  if (spec.layer >= 0) return 1 + spec.layer;
  if (spec.name == "embedding.weight") return 0;
  return spec.name == "head.weight" ? groups() - 1 : groups() - 2;
}

std::vector<std::string> Trainer::group_names() const {
  std::vector<std::string> names = {"embedding"};
  for (int64_t layer = 0; layer < config_.model.layers; ++layer) names.push_back("layers." + std::to_string(layer));
  names.push_back("final_norm");
  names.push_back("head");
  return names;
}

void Trainer::step(int64_t step, const BatchReader& read, bool stop_requested) {
  fill_zero(stream_, totals_);
  const int64_t attended = engine_.accumulate_gradients(microbatches_, read, totals_);
  reduce_gradients(stream_, engine_.groups(), engine_.parameters());
  fill_zero(stream_, sums_of(step));
  collect_sums(sums_of(step), attended, stop_requested);
  update(step);
}

void Trainer::collect_sums(Tensor sums, int64_t attended, bool stop_requested) {
  copy(stream_, totals_, sums.rows(kLossSum, 2));
  if (stop_requested && stream_.device == DeviceKind::cpu) sums.data<double>()[kStopRequests] = 1;
  for (const auto& parameter : engine_.parameters().parameters()) {
    if (!parameter->owner) continue;
    const int64_t count = parameter->gradient.count();
    sum_of_squares(stream_, parameter->gradient.view({count}),
                   InOut(sums.rows(kFirstSquare + group_of(parameter->spec), 1)));
  }
  const Coordinates at = engine_.groups().at;  // every tp rank and every stage have read the same rows; one counts
  if (at.tp == 0 && at.pp == 0 && stream_.device == DeviceKind::cpu) {
    sums.data<double>()[attended_slot()] = static_cast<double>(attended);
  }
  const ShiftConfig& shift = config_.model.shift;
  for (const auto& parameter : engine_.parameters().parameters()) {
    if (parameter->spec.group != DecayGroup::shift) continue;
    for (int stream = 0; stream < kStreams; ++stream) {
      if (!parameter->spec.name.ends_with(std::string("shift_") + kStreamNames[stream])) continue;
      const int taps = previous_of(shift, stream) + 1;
      tap_scratch_.release();
      Tensor values = tap_scratch_.allocate(parameter->weight.dtype(), {parameter->weight.extent(0), taps});
      if (!parameter->owner) continue;  // has the memory all the same, so that ranks of one kind need the same
      shift_taps_forward(stream_, parameter->weight, tap_form(shift.form), values);
      const int64_t slot = kFirstSquare + groups() + (parameter->spec.layer * kStreams + stream) * kMostTaps;
      sum_columns(stream_, values, InOut(sums.rows(slot, taps)));
    }
  }
  engine_.groups().world->all_reduce(stream_, InOut(sums), Reduction::sum).wait();
}

void Trainer::update(int64_t step) {
  const OptimizerSection& optimizer = config_.optimizer;
  const TrainSection& train = config_.train;
  const UpdateRule rule{.nominal = static_cast<double>(train.global_batch * train.sequence_length),
                        .clip = optimizer.clip,
                        .beta1 = optimizer.betas.first,
                        .beta2 = optimizer.betas.second};
  Tensor scalars = update_.rows(0, kUpdateScalars);
  update_scalars(stream_, rule, sums_of(step), groups(), learning_rate(optimizer, train.steps, step), InOut(counters_),
                 scalars, result_of(step));
  for (const auto& parameter : engine_.parameters().parameters()) {
    AdamW how{.beta1 = rule.beta1, .beta2 = rule.beta2, .epsilon = optimizer.epsilon, .weight_decay = 0};
    if (parameter->spec.group == DecayGroup::matrix) how.weight_decay = optimizer.weight_decay;
    if (parameter->spec.group == DecayGroup::shift) {
      how.weight_decay = optimizer.shift_weight_decay;
      how.learning_rate_scale = optimizer.shift_learning_rate_scale;
    }
    const int64_t count = parameter->weight.count();
    const auto flat = [count](const Tensor& tensor) { return tensor.defined() ? tensor.view({count}) : Tensor(); };
    adamw(stream_, how, scalars, InOut(flat(parameter->gradient)), InOut(flat(parameter->weight)),
          InOut(flat(parameter->rest)), InOut(flat(parameter->first_moment)), InOut(flat(parameter->second_moment)));
  }
}

StepResult Trainer::result(int64_t step) const {
  const double* values = result_of(step).data<double>();
  const double* sums = sums_of(step).data<double>();
  StepResult result{.loss = values[kLoss],
                    .gradient_norm = values[kGradientNorm],
                    .counted = sums[kCounted],
                    .attended = sums[attended_slot()],
                    .skipped = values[kWasSkipped] != 0,
                    .stop = values[kStop] > 0,
                    .group_norms = {},
                    .taps = {}};
  const double nominal = static_cast<double>(config_.train.global_batch * config_.train.sequence_length);
  const double correction = result.counted > 0 ? nominal / result.counted : 0;
  for (int64_t group = 0; group < groups(); ++group) {
    result.group_norms.push_back(std::sqrt(sums[kFirstSquare + group]) * correction);
  }
  const ModelConfig& model = config_.model;
  const double* taps = sums + kFirstSquare + groups();
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    result.taps.emplace_back();
    for (int stream = 0; stream < kStreams; ++stream, taps += kMostTaps) {
      const int previous = previous_of(model.shift, stream);
      const int64_t heads = stream == 0 ? model.heads : model.kv_heads;
      for (int tap = 0; previous > 0 && tap <= previous; ++tap) {
        result.taps.back()[stream].push_back(taps[tap] / static_cast<double>(heads));
      }
    }
  }
  return result;
}

double Trainer::evaluate(int microbatches, const BatchReader& read) {
  fill_zero(stream_, totals_);
  engine_.evaluate(microbatches, read, totals_);
  engine_.groups().world->all_reduce(stream_, InOut(totals_), Reduction::sum).wait();
  if (stream_.device == DeviceKind::meta) return 0;
  return totals_.data<double>()[0] / totals_.data<double>()[1];
}

MemoryPlan Trainer::arena_peaks() const {
  MemoryPlan plan = engine_.arena_peaks();
  plan[tap_scratch_.name()] = tap_scratch_.peak();
  return plan;
}

int64_t Trainer::skipped() const { return static_cast<int64_t>(counters_.data<double>()[kSkipped]); }
int64_t Trainer::skipped_in_row() const { return static_cast<int64_t>(counters_.data<double>()[kSkippedInRow]); }

std::string Trainer::state_json() const {
  const double* counters = counters_.data<double>();
  return nlohmann::json{{"applied_updates", static_cast<int64_t>(counters[kApplied])},
                        {"skipped_updates", static_cast<int64_t>(counters[kSkipped])},
                        {"skipped_in_row", static_cast<int64_t>(counters[kSkippedInRow])}}
      .dump();
}

void Trainer::restore_state(const std::string& json) {
  const nlohmann::json state = nlohmann::json::parse(json);
  double* counters = counters_.data<double>();
  counters[kApplied] = state.at("applied_updates").get<double>();
  counters[kSkipped] = state.at("skipped_updates").get<double>();
  counters[kSkippedInRow] = state.at("skipped_in_row").get<double>();
}

MemoryPlan plan_memory(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, Ledger& ledger) {
  Ledger planned;  // what is allocated counts down again when the trainer goes
  Stream stream{.device = DeviceKind::meta, .ledger = &planned, .threads = threads};
  const auto world = make_meta_world(rank, layout.ranks());
  Trainer trainer(config, make_groups(*world, layout, config.model.kv_heads), stream, {});
  const BatchReader nothing = [](int, HostBatch&) {};
  if (config.evaluation.every > 0) trainer.evaluate(1, nothing);
  planned.clear_work();
  trainer.step(1, nothing, false);
  ledger = planned;
  return trainer.arena_peaks();
}

}  // namespace shiftron
