// Executes pipeline actions; the model's modules do the rest.
#include "train/engine.h"

#include <algorithm>
#include <exception>
#include <iostream>

#include "kernels/kernels.h"
#include "train/virtual_stages.h"

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

std::string arena_name(const std::string& kind, int chunk) {
  return chunk == 0 ? kind : kind + " of chunk " + std::to_string(chunk);
}

Engine::Engine(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan, bool training,
               std::optional<Schedule> schedule)
    : config_(config),
      groups_(std::move(groups)),
      stream_(stream),
      schedule_(schedule.value_or(schedule_of(config))),
      parameters_(groups_.layout, groups_.at, number_types(config.train.precision)),
      exchange_(groups_, parameters_),
      chunks_(static_cast<size_t>(chunks_of(schedule_))),
      staging_(config, stream) {
  const ParallelSection& parallel = config.parallel;
  const std::vector<Range> layers = virtual_stage_layers(config);
  const int pieces = static_cast<int>(layers.size());
  const bool both_ends = chunk_place(schedule_, parallel.pp, pieces - 1).stage == 0;
  for (int chunk = 0; chunk < static_cast<int>(chunks_.size()); ++chunk) {
    const int piece = virtual_stage(schedule_, parallel.pp, groups_.at.pp, chunk);
    const StagePlace place{.layers = layers[static_cast<size_t>(piece)],
                           .first = piece == 0,
                           .last = piece == pieces - 1,
                           .both_ends = both_ends};
    chunks_[static_cast<size_t>(chunk)].stage =
        std::make_unique<TransformerStage>(parameters_, config.model, place,
                                           parallel.recompute.of_stage(groups_.at.pp));
  }
  parameters_.allocate(stream, training,
                       {.divided = training && parallel.zero > 0, .bucket_elements = bucket_elements(config, groups_.layout)});
  workspace_ = Buffer(stream.device, library_workspace(stream), *stream.ledger, "workspace");
  for (int chunk = 0; chunk < static_cast<int>(chunks_.size()); ++chunk) make_chunk(chunk, plan, training);
  scratch_ = std::make_unique<Arena>(stream, "scratch", plan, "scratch");
  make_rings(plan, training);
}

void Engine::make_chunk(int number, const MemoryPlan& plan, bool training) {
  Chunk& chunk = chunks_[static_cast<size_t>(number)];
  const int stages = config_.parallel.pp, own = groups_.at.pp;
  const auto neighbour = [&](int piece) {
    if (piece < 0 || piece == stages * static_cast<int>(chunks_.size())) return -1;
    const ChunkPlace place = chunk_place(schedule_, stages, piece);
    return place.stage == own ? place.chunk : -1;
  };
  const int piece = virtual_stage(schedule_, stages, own, number);
  chunk.before = neighbour(piece - 1);
  chunk.behind = neighbour(piece + 1);
  chunk.stage->make_tables(stream_, config_.train.sequence_length);
  chunk.weight_gradients.deferred = training && defers_weight_gradients(schedule_);
  if (training) {
    chunk.in_flight = most_in_flight(schedule_, stages, own, microbatches_of_step(config_, groups_.layout), number);
  }
  const int arenas = stream_.device == DeviceKind::meta ? 1 : chunk.in_flight;
  const auto make_arena = [&](const char* kind) {
    return std::make_unique<Arena>(stream_, arena_name(kind, number), plan, "activations", chunk.in_flight / arenas);
  };
  for (int i = 0; i < arenas; ++i) {
    chunk.activations.push_back(make_arena("activations"));
    chunk.operands.push_back(make_arena("operands"));
  }
  chunk.microbatches.resize(static_cast<size_t>(arenas));
}

void Engine::make_rings(const MemoryPlan& plan, bool training) {
  const int own = groups_.at.pp;
  const DType dtype = parameters_.types().activation;
  for (const ChannelEnd& end : groups_.channels) {
    if (end.channel.to != own || (!end.channel.forward && !training)) continue;
    const char* name = end.channel.forward ? "received forward" : "received backward";
    auto& rows = end.channel.forward ? inputs_ : d_outputs_;
    rows.try_emplace(end.channel.from, stream_, *end.group, name, plan, dtype, row_shape());
  }
  for (int chunk = 0; chunk < static_cast<int>(chunks_.size()); ++chunk) {
    const int piece = virtual_stage(schedule_, config_.parallel.pp, own, chunk);
    if (piece == 0 || chunks_[static_cast<size_t>(chunk)].before >= 0) continue;
    const int from = chunk_place(schedule_, config_.parallel.pp, piece - 1).stage;
    inputs_.at(from).add_ring(chunk, chunks_[static_cast<size_t>(chunk)].in_flight, true);
  }
  // A gradient's memory is sent on; the one before it may still be on its way.
  constexpr int kGradients = 2;
  for (auto& [from, rows] : d_outputs_) rows.add_ring(0, kGradients, false);
}

Communicator& Engine::channel(int from, int to, bool forward) const {
  for (const ChannelEnd& end : groups_.channels) {
    if (end.channel == Channel{from, to, forward}) return *end.group;
  }
  CHECK(false, "no channel from stage ", from, " to stage ", to);
}

Shape Engine::row_shape() const {
  return {config_.train.micro_batch * config_.train.sequence_length / groups_.layout.tp, config_.model.hidden};
}

bool Engine::last() const {
  return std::ranges::any_of(chunks_, [](const Chunk& chunk) { return chunk.stage->last(); });
}

void Engine::for_each_shift(const std::function<void(int layer, int stream, const KvShift& shift)>& visit) const {
  for (const Chunk& chunk : chunks_) chunk.stage->for_each_shift(visit);
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
  for (const Chunk& chunk : chunks_) {
    for (const Arena* arena : {chunk.activations.front().get(), chunk.operands.front().get()}) plan[arena->name()] = arena->peak();
  }
  plan[scratch_->name()] = scratch_->peak();
  for (const auto& [from, rows] : inputs_) rows.add_to(plan);
  for (const auto& [from, rows] : d_outputs_) rows.add_to(plan);
  return plan;
}

Run Engine::make_run(Chunk& chunk, const Microbatch& microbatch, bool training) {
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
             .weight_gradients = chunk.weight_gradients};
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

int64_t Engine::run_schedule(const BatchReader& read, Pass pass) {
  const int stage = groups_.at.pp, stages = config_.parallel.pp;
  for (const Chunk& chunk : chunks_) chunk.stage->prepare(stream_);
  // On meta one microbatch stands for all.
  const int stepped = stream_.device == DeviceKind::meta ? 1 : pass.microbatches;
  const Ledger::Repeat repeat(*stream_.ledger, pass.microbatches / stepped);
  const std::vector<Action> actions = pass.training ? make_schedule(schedule_, stages, stage, stepped)
                                                    : make_forward_schedule(schedule_, stages, stage, stepped);
  pass.arenas = assign_arenas(actions, stepped);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    CHECK(pass.arenas.arenas[i] <= static_cast<int>(chunks_[i].activations.size()), pass.arenas.arenas[i],
          " arenas are needed, ", chunks_[i].activations.size(), " are there");
  }
  expect_rows(actions);
  for (const Action& action : actions) {
    if (under_way(action.chunk, action.microbatch, pass).number != action.microbatch) {
      begin(action.chunk, action.microbatch, read, pass);
    }
    execute(action, pass);
  }
  for (Chunk& chunk : chunks_) {
    for (Microbatch& microbatch : chunk.microbatches) microbatch = Microbatch();  // whose sends the stream waits for
  }
  return pass.attended;
}

void Engine::expect_rows(const std::vector<Action>& actions) {
  std::map<int, std::vector<int>> forward, backward;  // rings by sender
  for (const Action& action : actions) {
    if (action.kind == ActionKind::recv_forward) forward[action.peer].push_back(action.chunk);
    if (action.kind == ActionKind::recv_backward) backward[action.peer].push_back(0);
  }
  for (auto& [from, rings] : forward) inputs_.at(from).expect(std::move(rings));
  for (auto& [from, rings] : backward) d_outputs_.at(from).expect(std::move(rings));
}

Engine::Microbatch& Engine::under_way(int chunk, int number, const Pass& pass) {
  const int arena = pass.arenas.arena_of[static_cast<size_t>(chunk)][static_cast<size_t>(number)];
  return chunks_[static_cast<size_t>(chunk)].microbatches[static_cast<size_t>(arena)];
}

void Engine::begin(int chunk, int number, const BatchReader& read, Pass& pass) {
  Chunk& own = chunks_[static_cast<size_t>(chunk)];
  Microbatch& microbatch = under_way(chunk, number, pass);
  const auto arena = static_cast<size_t>(&microbatch - own.microbatches.data());
  microbatch = Microbatch();  // whose sends the stream waits for
  microbatch.number = number;
  microbatch.activations = own.activations[arena].get();
  microbatch.operands = own.operands[arena].get();
  microbatch.activations->release();
  microbatch.operands->release();
  int64_t attended = 0;
  microbatch.rows = staging_.load(number, read, *microbatch.activations, attended);
  if (chunk == 0) pass.attended += attended;  // each chunk reads the same rows
}

void Engine::execute(const Action& action, const Pass& pass) {
  scratch_->release();
  Chunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  Microbatch& microbatch = under_way(action.chunk, action.microbatch, pass);
  const int own = groups_.at.pp;
  switch (action.kind) {
    case ActionKind::recv_forward:
      microbatch.input = inputs_.at(action.peer).next();
      break;
    case ActionKind::forward:
      if (chunk.before >= 0) microbatch.input = under_way(chunk.before, action.microbatch, pass).output;
      forward(chunk, microbatch, pass);
      break;
    case ActionKind::send_forward:
      microbatch.sends.push_back(channel(own, action.peer, true).send(stream_, microbatch.output, 1));
      break;
    case ActionKind::recv_backward:
      microbatch.d_output = d_outputs_.at(action.peer).next();
      break;
    case ActionKind::backward:
      if (chunk.behind >= 0) {  // its memory may be a received gradient's, which is needed again
        microbatch.d_output = microbatch.activations->allocate(parameters_.types().activation, row_shape());
        copy(stream_, under_way(chunk.behind, action.microbatch, pass).d_input, microbatch.d_output);
      }
      backward(chunk, microbatch, pass);
      break;
    case ActionKind::send_backward:
      microbatch.sends.push_back(channel(own, action.peer, false).send(stream_, microbatch.d_input, 1));
      break;
    case ActionKind::weight_gradients: {
      Run run = make_run(chunk, microbatch, pass.training);
      run_weight_gradients(run);
      if (completes(microbatch, pass)) run.exchange = &exchange_;
      chunk.stage->complete_gradients(run);
      break;
    }
  }
}

void Engine::forward(Chunk& chunk, Microbatch& microbatch, const Pass& pass) {
  const TransformerStage& stage = *chunk.stage;
  Run run = make_run(chunk, microbatch, pass.training);
  // Every tp rank computes the same totals; one of them counts.
  Tensor counted = scratch_->allocate(DType::float64, {2});
  fill_zero(stream_, counted);
  Tensor losses;
  if (pass.visit && stage.last()) losses = run.activations.allocate(parameters_.types().accumulation, {run.rows});
  microbatch.output = stage.forward(run, microbatch.rows.batch, microbatch.input, microbatch.saved, counted, losses);
  if (groups_.at.tp == 0 && stage.last()) add(stream_, pass.totals, counted, pass.totals);
  if (!losses.defined()) return;
  finish(stream_);
  pass.visit(microbatch.number, losses);
}

void Engine::backward(Chunk& chunk, Microbatch& microbatch, const Pass& pass) {
  Run run = make_run(chunk, microbatch, pass.training);
  if (completes(microbatch, pass) && !chunk.weight_gradients.deferred) run.exchange = &exchange_;
  microbatch.d_input = chunk.stage->backward(run, microbatch.d_output, microbatch.saved);
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
