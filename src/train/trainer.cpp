// The training step and what it reports.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "config/learning_rate.h"
#include "core/trace_range.h"
#include "parallel/connect_groups.h"
#include "train/device.h"

namespace shiftron {
namespace {

constexpr int kStreams = 3;
constexpr int kMostTaps = 4;

// What the host gives to a step, float64.
enum Given { kGivenRate, kGivenStop, kGivenAttended, kGiven };

// Categories of memory that is not on the GPU.
constexpr std::array kOfHost = {"staging", "communication"};

}  // namespace

Trainer::Trainer(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan,
                 std::optional<Schedule> schedule)
    : config_(config),
      stream_(stream),
      engine_(config, std::move(groups), stream, plan, true, schedule),
      microbatches_(microbatches_of_step(config, engine_.groups().layout)) {
  const int64_t taken = sum_count() + kUpdateCounters + kUpdateResults;
  const Shape evaluated = {1 + sources(), kLossTotals};
  const auto bytes = [](int64_t elements) { return elements * size_of(DType::float64); };
  device_ = Buffer(stream.device, bytes(kGiven + evaluated.count() + kUpdateScalars + taken + sum_scratch()),
                   *stream.ledger, "scalars");
  pinned_ = staging_buffer(stream, bytes(2 * (kGiven + taken) + evaluated.count() + kUpdateCounters));
  const auto taker = [&](const Buffer& buffer) {
    return [&buffer, bytes, offset = int64_t{0}](int64_t elements) mutable {
      offset += elements;
      return buffer.tensor(bytes(offset - elements), DType::float64, {elements});
    };
  };
  auto take = taker(device_);
  given_ = take(kGiven);
  evaluated_ = take(evaluated.count()).view(evaluated);
  totals_ = evaluated_.rows(0, 1).view({kLossTotals});
  scalars_ = take(kUpdateScalars);
  results_ = take(taken);
  sums_ = results_.rows(0, sum_count());
  counters_ = results_.rows(sum_count(), kUpdateCounters);
  step_result_ = results_.rows(sum_count() + kUpdateCounters, kUpdateResults);
  sum_scratch_ = take(sum_scratch());
  auto take_pinned = taker(pinned_);
  for (Slot& slot : slots_) {
    slot.given = take_pinned(kGiven);
    slot.taken = take_pinned(taken);
  }
  pinned_totals_ = take_pinned(evaluated.count()).view(evaluated);
  pinned_counters_ = take_pinned(kUpdateCounters);
}

Trainer::~Trainer() {
  // Weights of the last update may still be on their way to memory that is about to be freed.
  if (std::uncaught_exceptions() == 0) {
    try {
      engine_.parameters().await_weights(stream_);
    } catch (const std::exception&) {  // engine_.end() reports what failed
    }
  }
  engine_.end();
}

int64_t Trainer::tap_slot(int layer, int stream) const {
  return kFirstSquare + groups() + (int64_t{layer} * kStreams + stream) * kMostTaps;
}

int64_t Trainer::attended_slot() const {
  return tap_slot(static_cast<int>(config_.model.layers), 0);
}

int64_t Trainer::sum_scratch() const {
  int64_t needed = sum_of_squares_scratch(stream_, squares()).count();
  engine_.for_each_shift([&](int, int, const KvShift& shift) {
    if (shift.parameter() == nullptr) return;
    const Tensor& taps = shift.taps();
    needed = std::max(needed, sum_columns_scratch(stream_, taps.extent(0), taps.extent(1)).count());
  });
  return needed;
}

int64_t Trainer::group_of(const ParameterSpec& spec) const {
  switch (spec.part) {
    case Part::embedding:
      return 0;
    case Part::layer:
      return 1 + spec.layer;
    case Part::final_norm:
      return groups() - 2;
    case Part::head:
      return groups() - 1;
  }
  CHECK(false, "unknown part of the model");
}

std::vector<std::string> Trainer::group_names() const {
  std::vector<std::string> names = {"embedding"};
  for (int64_t layer = 0; layer < config_.model.layers; ++layer) names.push_back("layers." + std::to_string(layer));
  names.push_back("final_norm");
  names.push_back("head");
  return names;
}

void Trainer::warm_up(const BatchReader& read) {
  engine_.accumulate_gradients_locally(read, totals_);
  finish(stream_);
  stream_.ledger->clear_work();
  stream_.ledger->take_times();
}

void Trainer::step(int64_t step, const BatchReader& read, bool stop_requested) {
  const TraceRange range("step ", step);
  Slot& slot = slot_of(step);
  slot.end.wait_on_host();  // of the step before the last one
  stream_.ledger->begin_step();
  stream_.ledger->time_communication(true);
  slot.begin.record(stream_, true);
  if (last_step_ == 0) first_begin_ = slot.begin;
  slot.step = last_step_ = step;
  fill_zero(stream_, totals_);
  const int64_t attended = engine_.accumulate_gradients(microbatches_, read, totals_);
  if (stream_.device != DeviceKind::meta) {
    const Coordinates at = engine_.groups().at;  // all tp ranks and stages have read the same rows; one counts
    auto* given = slot.given.host_data<double>();
    given[kGivenRate] = learning_rate(config_.optimizer, config_.train.steps, step);
    given[kGivenStop] = stop_requested ? 1 : 0;
    given[kGivenAttended] = at.tp == 0 && at.pp == 0 ? static_cast<double>(attended) : 0;
  }
  upload(stream_, slot.given, given_);
  collect_sums(given_);
  update(given_);
  download(stream_, results_, slot.taken);
  slot.end.record(stream_, true);
  slot.times = stream_.ledger->take_times();
  slot.awaited = stream_.ledger->take_awaited();
  stream_.ledger->time_communication(false);
}

std::vector<Squares> Trainer::squares() const {
  std::vector<Squares> squares;
  for (const auto& parameter : engine_.parameters().parameters()) {
    const Range part = parameter->part;  // data-parallel ranks share this work
    if (!parameter->owner) continue;
    squares.push_back({.x = parameter->gradient.view({parameter->gradient.count()}).rows(part.begin, part.size()),
                       .sum = group_of(parameter->spec)});
  }
  std::ranges::stable_sort(squares, {}, &Squares::sum);
  return squares;
}

void Trainer::collect_sums(ConstTensor given) {
  fill_zero(stream_, sums_);
  copy(stream_, totals_.rows(0, 2), sums_.rows(kLossSum, 2));
  copy(stream_, totals_.rows(2, 1), sums_.rows(correct_slot(), 1));
  copy(stream_, given.rows(kGivenStop, 1), sums_.rows(kStopRequests, 1));
  copy(stream_, given.rows(kGivenAttended, 1), sums_.rows(attended_slot(), 1));
  sum_of_squares(stream_, squares(), InOut(sums_.rows(kFirstSquare, groups())), sum_scratch_);
  engine_.for_each_shift([&](int layer, int stream, const KvShift& shift) {
    if (shift.parameter() == nullptr || !shift.parameter()->owner || engine_.groups().at.dp > 0) return;
    sum_columns(stream_, shift.taps(), InOut(sums_.rows(tap_slot(layer, stream), shift.taps().extent(1))),
                sum_scratch_);
  });
  engine_.groups().world->all_reduce(stream_, InOut(sums_), Reduction::sum).wait(stream_);
}

void Trainer::update(ConstTensor given) {
  const TraceRange range("optimizer update");
  const OptimizerSection& optimizer = config_.optimizer;
  const TrainSection& train = config_.train;
  const UpdateRule rule{.nominal = static_cast<double>(train.global_batch * train.sequence_length),
                        .clip = optimizer.clip,
                        .beta1 = optimizer.betas.first,
                        .beta2 = optimizer.betas.second};
  update_scalars(stream_, rule, sums_, groups(), given.rows(kGivenRate, 1), InOut(counters_), scalars_, step_result_);
  const AdamW how{.beta1 = rule.beta1, .beta2 = rule.beta2, .epsilon = optimizer.epsilon};
  // Updates first what the next forward needs first, so that it is sent while the rest is updated.
  const std::vector<Bucket>& buckets = engine_.parameters().buckets();
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    std::vector<AdamWParameter> parameters;
    for (const Parameter* parameter : bucket->parameters) parameters.push_back(update_of(*parameter));
    adamw(stream_, how, scalars_, parameters);
    engine_.gather(*bucket);
  }
}

AdamWParameter Trainer::update_of(const Parameter& parameter) const {
  const OptimizerSection& optimizer = config_.optimizer;
  const Range kept = parameter.kept;
  const auto of_kept = [kept](const Tensor& all) { return all.view({all.count()}).rows(kept.begin, kept.size()); };
  AdamWParameter update{.gradient = of_kept(parameter.gradient),
                        .weight = of_kept(parameter.weight),
                        .rest = parameter.rest,
                        .first_moment = parameter.first_moment,
                        .second_moment = parameter.second_moment};
  if (parameter.spec.group == DecayGroup::matrix) update.weight_decay = optimizer.weight_decay;
  if (parameter.spec.group == DecayGroup::shift) {
    update.weight_decay = optimizer.shift_weight_decay;
    update.learning_rate_scale = optimizer.shift_learning_rate_scale;
    update.to_unit_interval = config_.model.shift.form == ShiftForm::project;
  }
  return update;
}

StepResult Trainer::result(int64_t step) {
  Slot& slot = slot_of(step);
  CHECK(slot.step == step && step > 0, "the result of step ", step, " is not available");
  slot.end.wait_on_host();
  for (std::vector<AwaitedOperation>* awaited : {&unfinished_, &slot.awaited}) take_reached(*awaited, slot.times);
  std::ranges::move(std::exchange(slot.awaited, {}), std::back_inserter(unfinished_));
  const double* sums = slot.taken.host_data<double>();
  const double* counters = sums + sum_count();
  const double* values = counters + kUpdateCounters;
  if (step > known_step_) {
    std::copy_n(counters, kUpdateCounters, known_counters_.begin());
    known_step_ = step;
  }
  const double none = std::numeric_limits<double>::quiet_NaN(), counted = sums[kCounted];
  StepResult result{.loss = counted > 0 ? values[kLoss] : none,
                    .accuracy = counted > 0 ? sums[correct_slot()] / counted : none,
                    .gradient_norm = values[kGradientNorm],
                    .counted = counted,
                    .attended = sums[attended_slot()],
                    .skipped = values[kWasSkipped] != 0,
                    .stop = values[kStop] > 0,
                    .group_norms = {},
                    .taps = {},
                    .skipped_updates = static_cast<int64_t>(counters[kSkipped]),
                    .skipped_in_row = static_cast<int64_t>(counters[kSkippedInRow]),
                    .seconds = slot.end.seconds_since(slot.begin),
                    .elapsed = slot.end.seconds_since(first_begin_),
                    .times = slot.times};
  const double nominal = static_cast<double>(config_.train.global_batch * config_.train.sequence_length);
  const double correction = result.counted > 0 ? nominal / result.counted : 0;
  for (int64_t group = 0; group < groups(); ++group) {
    result.group_norms.push_back(std::sqrt(sums[kFirstSquare + group]) * correction);
  }
  add_taps(sums, result);
  return result;
}

void Trainer::add_taps(const double* sums, StepResult& result) const {
  const ModelConfig& model = config_.model;
  for (int layer = 0; layer < model.layers; ++layer) {
    result.taps.emplace_back();
    for (int stream = 0; stream < kStreams; ++stream) {
      const int previous = previous_tokens(model.shift, stream);
      const int64_t heads = heads_of(model, stream);
      for (int tap = 0; previous > 0 && tap <= previous; ++tap) {
        result.taps.back()[static_cast<size_t>(stream)].push_back(sums[tap_slot(layer, stream) + tap] /
                                                                  static_cast<double>(heads));
      }
    }
  }
}

MeanLoss mean_loss(const double* totals) {
  const double counted = totals[1], none = std::numeric_limits<double>::quiet_NaN();
  if (counted == 0) return {.loss = none, .accuracy = none};
  return {.loss = totals[0] / counted, .accuracy = totals[2] / counted, .counted = counted};
}

std::optional<EvaluationResult> Trainer::evaluate(
    int microbatches, const BatchReader& read, const std::function<bool()>& keep_going,
    const std::function<std::vector<SourceTotals::Rows>(int)>& sources_of) {
  const TraceRange range("evaluation");
  constexpr int kOfStage = 8;  // microbatches per stage between two questions, at which stages wait for each other
  const int at_once = keep_going ? kOfStage * engine_.groups().layout.pp : microbatches;
  const int64_t apart = sources_of ? sources() : 0;
  fill_zero(stream_, evaluated_);
  for (int begin = 0; begin < microbatches; begin += at_once) {
    if (keep_going && !keep_going()) return std::nullopt;
    SourceTotals of_sources;
    if (apart > 0) {
      of_sources = {.totals = evaluated_.rows(1, apart), .of = [&](int index) { return sources_of(begin + index); }};
    }
    engine_.evaluate(
        std::min(at_once, microbatches - begin), [&](int index, HostBatch& batch) { read(begin + index, batch); },
        totals_, {}, of_sources);
  }
  engine_.groups().world->all_reduce(stream_, InOut(evaluated_), Reduction::sum).wait(stream_);
  download(stream_, evaluated_, pinned_totals_);
  finish(stream_);
  EvaluationResult result;
  if (stream_.device == DeviceKind::meta) return result;
  const double* totals = pinned_totals_.host_data<double>();
  result.all = mean_loss(totals);
  for (int64_t source = 1; source <= apart; ++source) {
    result.sources.push_back(mean_loss(totals + source * kLossTotals));
  }
  return result;
}

TrainerState Trainer::state() const {
  CHECK(known_step_ == last_step_, "step ", last_step_, " is still running; its result must be read before its state");
  return {.applied_updates = static_cast<int64_t>(known_counters_[kApplied]),
          .skipped_updates = static_cast<int64_t>(known_counters_[kSkipped]),
          .skipped_in_row = static_cast<int64_t>(known_counters_[kSkippedInRow])};
}

void Trainer::restore(const TrainerState& state) {
  known_counters_[kApplied] = static_cast<double>(state.applied_updates);
  known_counters_[kSkipped] = static_cast<double>(state.skipped_updates);
  known_counters_[kSkippedInRow] = static_cast<double>(state.skipped_in_row);
  std::ranges::copy(known_counters_, pinned_counters_.host_data<double>());
  upload(stream_, pinned_counters_, counters_);
}

MemoryPlan plan_memory(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, Ledger& ledger,
                       std::optional<Schedule> schedule) {
  Ledger planned;  // separate: the trainer subtracts its memory again when it is destroyed
  Stream stream = planning_stream(config, threads, planned);
  if (stream.planned == DeviceKind::cuda) {
    planned.add_memory("reserve", config.device.reserve << 20);
  }
  const auto world = make_meta_world(rank, layout.ranks());
  Trainer trainer(config, make_groups(*world, layout, config.model.kv_heads, schedule.value_or(schedule_of(config))),
                  stream, {}, schedule);
  const BatchReader nothing = [](int, HostBatch&) {};
  if (config.evaluation.every > 0) {
    trainer.evaluate(1, nothing, {}, [](int) { return std::vector<SourceTotals::Rows>(); });
  }
  if (!config.evaluation.tasks.empty()) {
    trainer.engine().run_layers(1, nothing, [](Run&, const TransformerStage&, const Tensor&) {});
  }
  planned.clear_work();
  trainer.step(1, nothing, false);
  if (stream.planned == DeviceKind::cuda) {
    NcclBuffers buffers = NcclBuffers::of_environment();
    if (stream.deterministic) buffers.multicast = false;  // repeat_sums()
    const int64_t bytes = nccl_memory(trainer.engine().groups(), planned.traffic(), buffers);
    if (bytes > 0) planned.add_memory(kNcclMemory, bytes);
  }
  ledger = planned;
  if (stream.planned == DeviceKind::cuda) {
    for (const char* of_host : kOfHost) {
      if (const auto found = planned.memory().find(of_host); found != planned.memory().end()) {
        ledger.add_memory(of_host, -found->second);
      }
    }
  }
  return trainer.arena_peaks();
}

void add_planned_memory(const Stream& planning, const Ledger& before, Ledger& ledger) {
  for (const auto& [category, bytes] : planning.ledger->memory()) {
    if (planning.planned == DeviceKind::cuda && std::ranges::find(kOfHost, category) != kOfHost.end()) continue;
    const auto known = before.memory().find(category);
    const int64_t more = bytes - (known == before.memory().end() ? 0 : known->second);
    if (more != 0) ledger.add_memory(category, more);
  }
}

}  // namespace shiftron
