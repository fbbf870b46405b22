// Executes pipeline actions; the model's modules do the rest.
#include "train/engine.h"

#include <algorithm>
#include <exception>
#include <iostream>

#include "kernels/kernels.h"

namespace shiftron {

int microbatches_of_step(const RunConfig& config, const ParallelLayout& layout) {
  return static_cast<int>(config.train.global_batch / (config.train.micro_batch * layout.dp));
}

int64_t bucket_elements(const RunConfig& config, const ParallelLayout& layout) {
  if (config.parallel.bucket_elements > 0) return config.parallel.bucket_elements;
  return (int64_t{1} << 20) * std::max(layout.dp, 40);
}

NumberTypes number_types(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return {DType::float64, DType::float64};
    case Precision::fp32:
      return {DType::float32, DType::float32};
    case Precision::bf16:
      return {DType::bfloat16, DType::float32};
  }
  CHECK(false, "unknown precision");
}

void choose_bfloat16_products(Precision precision, ControlPlane& world, CpuOptions& cpu) {
  if (precision != Precision::bf16) return;
  const bool first = world.rank() == 0;
  std::string choice = "00";
  if (first && bfloat16_matmul_pays(cpu)) choice[0] = '1';
  if (first && bfloat16_tiles_pay(cpu)) choice[1] = '1';
  choice = world.broadcast_text(choice, 0);
  cpu.bfloat16_matmul = choice.at(0) == '1';
  cpu.bfloat16_tiles = choice.at(1) == '1';
}

DType product_type(Precision precision, const CpuOptions& cpu) {
  return precision == Precision::bf16 && cpu.bfloat16_matmul ? DType::bfloat16 : DType::float32;
}

Schedule schedule_of(const RunConfig& config) { return {.kind = config.parallel.pipeline}; }

Engine::Engine(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan, bool training,
               std::optional<Schedule> schedule)
    : config_(config),
      groups_(std::move(groups)),
      stream_(stream),
      schedule_(schedule.value_or(schedule_of(config))),
      parameters_(groups_.layout, groups_.at, number_types(config.train.precision)),
      exchange_(groups_, parameters_),
      staging_(config, stream) {
  const ParallelSection& parallel = config.parallel;
  const int stage = groups_.at.pp;
  const std::vector<Range> layers = stage_layers(config.model.layers, parallel.pp, parallel.stage_layers,
                                                 head_in_layers(config.model, config.train.sequence_length));
  stage_ = std::make_unique<TransformerStage>(parameters_, config.model, layers[stage],
                                              parallel.recompute.of_stage(stage));
  parameters_.allocate(stream, training, {.divided = training && parallel.zero > 0, .bucket_elements = bucket_elements(config, groups_.layout)});
  stage_->make_tables(stream, config.train.sequence_length);
  workspace_ = Buffer(stream.device, library_workspace(stream), *stream.ledger, "workspace");
  weight_gradients_.deferred = training && defers_weight_gradients(schedule_);
  const int microbatches = microbatches_of_step(config, groups_.layout);
  const int in_flight = training ? most_in_flight(schedule_, parallel.pp, stage, microbatches, 0) : 1;
  const int arenas = stream.device == DeviceKind::meta ? 1 : in_flight;
  const auto make_arena = [&](const char* name, const char* category, int alike) {
    return std::make_unique<Arena>(stream, name, plan, category, alike);
  };
  for (int i = 0; i < arenas; ++i) {
    activations_.push_back(make_arena("activations", "activations", in_flight / arenas));
    operands_.push_back(make_arena("operands", "activations", in_flight / arenas));
  }
  scratch_ = make_arena("scratch", "scratch", 1);
  Microbatch none;
  none.activations = activations_.front().get();
  none.operands = operands_.front().get();
  const Shape rows = {make_run(none, training).local_rows(), config.model.hidden};
  const DType dtype = parameters_.types().activation;
  inputs_ = std::make_unique<ReceivedRows>(stream, groups_.pipeline.forward_in.get(), 0, "received forward", plan, dtype,
                                           rows, in_flight);
  // A gradient's memory is sent on; the one before it may still be on its way.
  constexpr int kGradients = 2;
  Communicator* backward_in = training ? groups_.pipeline.backward_in.get() : nullptr;
  d_outputs_ = std::make_unique<ReceivedRows>(stream, backward_in, 1, "received backward", plan, dtype, rows, kGradients);
}

void Engine::end() noexcept {
  if (stream_.queue == nullptr) return;
  if (std::uncaught_exceptions() == 0) {
    try {
      return finish(stream_);
    } catch (const std::exception& error) {
      std::cerr << "work that was under way failed: " << error.what() << std::endl;
    }
  }
  stream_.queue->drop();
  groups_.abandon();
}

MemoryPlan Engine::arena_peaks() const {
  MemoryPlan plan;
  for (const Arena* arena : {activations_.front().get(), operands_.front().get(), scratch_.get()}) {
    plan[arena->name()] = arena->peak();
  }
  inputs_->add_to(plan);
  d_outputs_->add_to(plan);
  return plan;
}

Run Engine::make_run(const Microbatch& microbatch, bool training) {
  const TrainSection& train = config_.train;
  return Run{.stream = stream_,
             .activations = *microbatch.activations,
             .operands = *microbatch.operands,
             .scratch = *scratch_,
             .groups = groups_,
             .training = training,
             .gather_rows = true,
             .rows = train.micro_batch * train.sequence_length,
             .sequence_length = train.sequence_length,
             .documents = microbatch.rows.documents,
             .loss_scale = 1.0 / static_cast<double>(train.global_batch * train.sequence_length),
             .microbatch = microbatch.number,
             .weight_gradients = weight_gradients_};
}

int64_t Engine::accumulate_gradients(int microbatches, const BatchReader& read, Tensor totals) {
  fill_zero(stream_, parameters_.gradients());
  exchange_.begin();
  const int64_t attended = run_schedule(read, {.training = true, .microbatches = microbatches, .totals = totals});
  exchange_.finish(stream_);
  return attended;
}

void Engine::evaluate(int microbatches, const BatchReader& read, Tensor totals, const LossVisitor& visit) {
  run_schedule(read, {.training = false, .microbatches = microbatches, .totals = totals, .visit = visit});
}

int64_t Engine::run_schedule(const BatchReader& read, const Pass& pass) {
  const int stage = groups_.at.pp, stages = config_.parallel.pp;
  stage_->prepare(stream_);
  // On meta one microbatch stands for all.
  const int stepped = stream_.device == DeviceKind::meta ? 1 : pass.microbatches;
  const Ledger::Repeat repeat(*stream_.ledger, pass.microbatches / stepped);
  const std::vector<Action> actions = pass.training ? make_schedule(schedule_, stages, stage, stepped)
                                                    : make_forward_schedule(schedule_, stages, stage, stepped);
  const ArenaAssignment assignment = assign_arenas(actions, stepped);
  CHECK(assignment.arenas.at(0) <= static_cast<int>(activations_.size()), assignment.arenas[0], " arenas are needed, ",
        activations_.size(), " are there");
  if (groups_.pipeline.forward_in) inputs_->expect(stepped);
  if (groups_.pipeline.backward_in && pass.training) d_outputs_->expect(stepped);
  std::vector<Microbatch> in_flight(activations_.size());  // in each arena
  int64_t attended = 0;
  for (const Action& action : actions) {
    const auto arena = static_cast<size_t>(assignment.arena_of[0][static_cast<size_t>(action.microbatch)]);
    Microbatch& microbatch = in_flight[arena];
    if (microbatch.number != action.microbatch) begin(microbatch, action.microbatch, arena, read, attended);
    execute(action, microbatch, pass);
  }
  return attended;
}

void Engine::begin(Microbatch& microbatch, int number, size_t arena, const BatchReader& read, int64_t& attended) {
  microbatch = Microbatch();  // whose sends the stream waits for
  microbatch.number = number;
  microbatch.activations = activations_[arena].get();
  microbatch.operands = operands_[arena].get();
  microbatch.activations->release();
  microbatch.operands->release();
  microbatch.rows = staging_.load(number, read, *microbatch.activations, attended);
}

void Engine::execute(const Action& action, Microbatch& microbatch, const Pass& pass) {
  scratch_->release();
  switch (action.kind) {
    case ActionKind::recv_forward:
      microbatch.input = inputs_->next();
      break;
    case ActionKind::forward:
      forward(microbatch, pass);
      break;
    case ActionKind::send_forward:
      microbatch.sends.push_back(groups_.pipeline.forward_out->send(stream_, microbatch.output, 1));
      break;
    case ActionKind::recv_backward:
      microbatch.d_output = d_outputs_->next();
      break;
    case ActionKind::backward: {
      Run run = make_run(microbatch, pass.training);
      if (completes(microbatch, pass) && !schedule_.deferred) run.exchange = &exchange_;
      microbatch.d_input = stage_->backward(run, microbatch.d_output, microbatch.saved);
      break;
    }
    case ActionKind::send_backward:
      microbatch.sends.push_back(groups_.pipeline.backward_out->send(stream_, microbatch.d_input, 0));
      break;
    case ActionKind::weight_gradients: {
      Run run = make_run(microbatch, pass.training);
      run_weight_gradients(run);
      if (completes(microbatch, pass)) run.exchange = &exchange_;
      stage_->complete_gradients(run);
      break;
    }
  }
}

void Engine::forward(Microbatch& microbatch, const Pass& pass) {
  Run run = make_run(microbatch, pass.training);
  // Every tp rank computes the same totals; one of them counts.
  Tensor counted = scratch_->allocate(DType::float64, {2});
  fill_zero(stream_, counted);
  Tensor losses;
  if (pass.visit && stage_->last()) losses = run.activations.allocate(parameters_.types().accumulation, {run.rows});
  microbatch.output = stage_->forward(run, microbatch.rows.batch, microbatch.input, microbatch.saved, counted, losses);
  if (groups_.at.tp == 0 && stage_->last()) add(stream_, pass.totals, counted, pass.totals);
  if (!losses.defined()) return;
  finish(stream_);
  pass.visit(microbatch.number, losses);
}

ParameterCount count_parameters(const RunConfig& config) {
  RunConfig whole = config;
  whole.parallel = ParallelSection{};
  Ledger ledger;
  Stream stream{.device = DeviceKind::meta, .ledger = &ledger};
  const auto world = make_meta_world(0, 1);
  Engine engine(whole, make_groups(*world, ParallelLayout{}, whole.model.kv_heads), stream, {}, false);
  ParameterCount count;
  for (const auto& parameter : engine.parameters().parameters()) {
    const ParameterSpec& spec = parameter->spec;
    count.total += spec.shape.count();
    if (spec.part != Part::embedding && spec.part != Part::head) count.outside_embedding += spec.shape.count();
  }
  return count;
}

}  // namespace shiftron
