// Executes pipeline actions; the model's modules do the rest.
#include "train/engine.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/log.h"
#include "core/trace_range.h"
#include "kernels/kernels.h"
#include "plan/virtual_stages.h"

namespace shiftron {

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

namespace {

constexpr int kMostAhead = 4;  // messages of a forward-only pass that the next stage has not yet taken
// Arenas of a microbatch: what backward needs, and what its queued weight gradients need.
constexpr std::array kArenaKinds = {"activations", "operands"};

// Entry of a memory plan.
std::string arena_name(const std::string& kind, int chunk) {
  return chunk == 0 ? kind : kind + " of chunk " + std::to_string(chunk);
}

int64_t bytes_of_largest(const std::string& kind, const std::vector<int>& chunks, const MemoryPlan& peaks) {
  int64_t bytes = 0;
  for (const int chunk : chunks) {
    const auto peak = peaks.find(arena_name(kind, chunk));
    CHECK(peak != peaks.end(), "the memory plan does not contain ", arena_name(kind, chunk));
    bytes = std::max(bytes, peak->second);
  }
  return bytes;
}

}  // namespace

int64_t arena_bytes(const StageMemory& memory, const MemoryPlan& peaks) {
  int64_t bytes = 0;
  for (const std::vector<int>& chunks : memory.arenas) {
    for (const char* kind : kArenaKinds) bytes += bytes_of_largest(kind, chunks, peaks);
  }
  return bytes;
}

Engine::Engine(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan, bool training,
               std::optional<Schedule> schedule, int64_t attending_rows)
    : config_(config),
      groups_(std::move(groups)),
      stream_(stream),
      libraries_(stream),
      schedule_(schedule.value_or(schedule_of(config))),
      parameters_(groups_.layout, groups_.at, number_types(config.train.precision)),
      exchange_(groups_, parameters_),
      chunks_(static_cast<size_t>(chunks_of(schedule_))),
      needed_(training ? stage_memory(schedule_, config.parallel.pp, groups_.at.pp,
                                      microbatches_of_step(config, groups_.layout))
                       : forward_stage_memory(schedule_, config.parallel.pp, groups_.at.pp)),
      staging_(config, stream, chunks_of(schedule_), attending_rows) {
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
    chunks_[static_cast<size_t>(chunk)].stage = std::make_unique<TransformerStage>(
        parameters_, config.model, place, parallel.recompute.of_stage(groups_.at.pp));
  }
  parameters_.allocate(
      stream, training,
      {.divided = training && parallel.zero > 0, .bucket_elements = bucket_elements(config, groups_.layout)});
  for (int chunk = 0; chunk < static_cast<int>(chunks_.size()); ++chunk) make_chunk(chunk, training);
  make_arenas(plan);
  scratch_ = std::make_unique<Arena>(stream, "scratch", plan, "scratch");
  make_slots(plan, training);
}

void Engine::make_chunk(int number, bool training) {
  Chunk& chunk = chunks_[static_cast<size_t>(number)];
  const auto before = neighbour(schedule_, config_.parallel.pp, {groups_.at.pp, number}, -1);
  if (before && before->stage == groups_.at.pp) chunk.before = before->chunk;
  chunk.stage->make_tables(stream_, config_.train.sequence_length);
  chunk.weight_gradients.deferred = training && defers_weight_gradients(schedule_);
}

void Engine::make_arenas(const MemoryPlan& plan) {
  const auto make = [&](const char* kind, int64_t bytes, int64_t copies) {
    return std::make_unique<Arena>(stream_, kind, MemoryPlan{{kind, bytes}}, "activations", copies);
  };
  if (stream_.device == DeviceKind::meta) {  // these arenas only measure; run_schedule() counts them
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      memory_.push_back({make(kArenaKinds[0], 0, 0), make(kArenaKinds[1], 0, 0), {}});
    }
    return;
  }
  for (const std::vector<int>& chunks : needed_.arenas) {
    const auto sized = [&](const char* kind) { return make(kind, bytes_of_largest(kind, chunks, plan), 1); };
    memory_.push_back({sized(kArenaKinds[0]), sized(kArenaKinds[1]), {}});
  }
}

void Engine::make_slots(const MemoryPlan& plan, bool training) {
  constexpr int kGradients = kGradientsInUse + 1;  // and one that is being received
  for (const ChannelEnd& end : groups_.channels) {
    const auto& [from, to, is_forward] = end.channel;
    if (to != groups_.at.pp || (!is_forward && !training)) continue;
    const char* name = is_forward ? "received forward" : "received backward";
    auto& rows = is_forward ? inputs_ : d_outputs_;
    rows.try_emplace(from, stream_, *end.group, name, plan, is_forward ? needed_.slots.at(from) : kGradients,
                     parameters_.types().activation, row_shape());
  }
}

Shape Engine::row_shape() const {
  return {config_.train.micro_batch * config_.train.sequence_length / groups_.layout.tp, config_.model.hidden};
}

bool Engine::last() const {
  return std::ranges::any_of(chunks_, [](const Chunk& chunk) { return chunk.stage->last(); });
}

std::vector<ModelPiece> Engine::pieces() const {
  std::vector<ModelPiece> all;
  const int stages = config_.parallel.pp;
  for (int piece = 0; piece < stages * static_cast<int>(chunks_.size()); ++piece) {
    const auto [stage, chunk] = chunk_place(schedule_, stages, piece);
    all.push_back({stage, stage == groups_.at.pp ? chunks_[static_cast<size_t>(chunk)].stage.get() : nullptr});
  }
  return all;
}

void Engine::for_each_shift(const std::function<void(int layer, int stream, const KvShift& shift)>& visit) const {
  for (const Chunk& chunk : chunks_) chunk.stage->for_each_shift(visit);
}

void Engine::gather_all() {
  for (const Bucket& bucket : parameters_.buckets()) gather(bucket);
  parameters_.await_weights(stream_);
  finish(stream_);
}

void Engine::end() noexcept {
  if (stream_.queue == nullptr) return;
  if (std::uncaught_exceptions() == 0) {
    try {
      return finish(stream_);
    } catch (const std::exception& error) {
      print_to_stderr(std::string("pending device work failed: ") + error.what());
    }
  }
  groups_.abandon();  // first: a queue that cannot discard its work waits for them
  stream_.queue->drop();
}

MemoryPlan Engine::arena_peaks() const {
  MemoryPlan plan = peaks_;
  plan[scratch_->name()] = scratch_->peak();
  for (const auto& [from, rows] : inputs_) rows.add_to(plan);
  for (const auto& [from, rows] : d_outputs_) rows.add_to(plan);
  return plan;
}

Run Engine::make_run(Chunk& chunk, const MicrobatchMemory& memory, bool training) {
  const TrainSection& train = config_.train;
  return Run{.stream = stream_,
             .activations = *memory.activations,
             .operands = *memory.operands,
             .scratch = *scratch_,
             .groups = groups_,
             .training = training,
             .gather_rows = true,
             .rows = train.micro_batch * train.sequence_length,
             .sequence_length = train.sequence_length,
             .documents = memory.held.rows.documents,
             .loss_scale = 1.0 / static_cast<double>(train.global_batch * train.sequence_length),
             .microbatch = memory.held.number,
             .weight_gradients = chunk.weight_gradients};
}

int64_t Engine::accumulate_gradients(int microbatches, const BatchReader& read, Tensor totals) {
  return train(read, {.training = true, .microbatches = microbatches, .totals = totals});
}

void Engine::accumulate_gradients_locally(const BatchReader& read, Tensor totals) {
  train(read, {.training = true, .alone = true, .microbatches = 1, .totals = totals});
}

int64_t Engine::train(const BatchReader& read, const Pass& pass) {
  fill_zero(stream_, parameters_.gradients());
  exchange_.begin();
  const int64_t attended = run_schedule(read, pass);
  exchange_.finish(stream_);
  return attended;
}

void Engine::evaluate(int microbatches, const BatchReader& read, Tensor totals, const LossVisitor& visit,
                      const SourceTotals& sources) {
  run_schedule(read,
               {.training = false, .microbatches = microbatches, .totals = totals, .visit = visit, .sources = sources});
}

void Engine::run_layers(int microbatches, const BatchReader& read, const LayersVisitor& visit) {
  run_schedule(read, {.training = false, .microbatches = microbatches, .totals = {}, .visit_layers = visit});
}

int64_t Engine::run_schedule(const BatchReader& read, Pass pass) {
  const int stage = groups_.at.pp, stages = config_.parallel.pp;
  for (const Chunk& chunk : chunks_) chunk.stage->prepare(stream_);
  // On meta one microbatch stands for all.
  const int stepped = stream_.device == DeviceKind::meta ? 1 : pass.microbatches;
  const Ledger::Repeat repeat(*stream_.ledger, pass.microbatches / stepped);
  const std::vector<Action> actions = pass.training ? make_schedule(schedule_, stages, stage, stepped)
                                                    : make_forward_schedule(schedule_, stages, stage, stepped);
  if (pass.training && !pass.alone) {
    pass.arena_of = assign_arenas(actions, stepped).arena_of;
  } else {  // each chunk holds one at a time
    for (const int arena : needed_.first_arena) pass.arena_of.emplace_back(static_cast<size_t>(stepped), arena);
  }
  expect_rows(actions, !pass.alone);
  // On a GPU, loading a kernel in a pass's first forward may wait for receives that are already posted, so no receive
  // may be posted before it whose rows depend on that forward. Kernels of training are loaded already.
  if (pass.training) receive_ahead();
  for (const Action& action : actions) {
    const Microbatch& held = memory_of(action.chunk, action.microbatch, pass).held;
    if (held.chunk != action.chunk || held.number != action.microbatch)
      begin(action.chunk, action.microbatch, read, pass);
    execute(action, pass);
    if (action.kind == ActionKind::forward) receive_ahead();
  }
  for (MicrobatchMemory& memory : memory_) clear(memory);
  if (stream_.device == DeviceKind::meta) {
    const int64_t bytes = arena_bytes(needed_, peaks_);
    stream_.ledger->add_memory("activations", bytes - std::exchange(counted_, bytes));
  }
  return pass.attended;
}

void Engine::expect_rows(const std::vector<Action>& actions, bool come) {
  for (auto& [from, rows] : inputs_) rows.expect(assign_slots(actions, from).slot_of, come);
  for (auto& [from, rows] : d_outputs_) {
    std::vector<int> slots;  // in turn
    for (const Action& action : actions) {
      if (action.kind != ActionKind::recv_backward || action.peer != from) continue;
      slots.push_back(static_cast<int>(slots.size()) % rows.slots());
    }
    rows.expect(slots, come);
  }
}

void Engine::receive_ahead() {
  for (auto& [from, rows] : inputs_) rows.start_receiving_ahead();
  for (auto& [from, rows] : d_outputs_) rows.start_receiving_ahead();
}

Engine::MicrobatchMemory& Engine::memory_of(int chunk, int number, const Pass& pass) {
  const bool planned = stream_.device == DeviceKind::meta;
  return memory_.at(static_cast<size_t>(planned ? chunk : pass.arena_of[chunk][number]));
}

Engine::MicrobatchMemory& Engine::neighbour_memory(int chunk, const Microbatch& microbatch, const Pass& pass) {
  MicrobatchMemory& memory = memory_of(chunk, microbatch.number, pass);
  CHECK(memory.held.chunk == chunk && memory.held.number == microbatch.number, "chunk ", chunk,
        " does not hold microbatch ", microbatch.number);
  return memory;
}

void Engine::begin(int chunk, int number, const BatchReader& read, Pass& pass) {
  const TraceRange range("rows of microbatch ", number, ", chunk ", chunk);
  MicrobatchMemory& memory = memory_of(chunk, number, pass);
  clear(memory);
  memory.held.chunk = chunk;
  memory.held.number = number;
  memory.held.rows = staging_.load(number, read, *memory.activations, pass.attended, pass.visit_layers != nullptr);
}

void Engine::clear(MicrobatchMemory& memory) {
  Microbatch gone = std::exchange(memory.held, {});
  for (Work& send : gone.sends) send.wait(stream_);
  const int chunk = gone.chunk;
  for (Arena* arena : {memory.activations.get(), memory.operands.get()}) {
    const int64_t bytes = arena->release();
    if (chunk < 0) continue;
    int64_t& peak = peaks_[arena_name(arena->name(), chunk)];
    peak = std::max(peak, bytes);
  }
}

void Engine::execute(const Action& action, const Pass& pass) {
  scratch_->release();
  Chunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  MicrobatchMemory& memory = memory_of(action.chunk, action.microbatch, pass);
  Microbatch& microbatch = memory.held;
  const int own = groups_.at.pp;
  switch (action.kind) {
    case ActionKind::recv_forward:
      microbatch.input = inputs_.at(action.peer).next();
      break;
    case ActionKind::forward:
      if (chunk.before >= 0) microbatch.input = neighbour_memory(chunk.before, microbatch, pass).held.output;
      forward(chunk, memory, pass);
      break;
    case ActionKind::send_forward:
      if (pass.alone) break;
      microbatch.sends.push_back(groups_.channel({own, action.peer, true})
                                     .send(stream_, microbatch.output, 1, pass.training ? 0 : kMostAhead));
      break;
    case ActionKind::recv_backward:
      microbatch.d_output = d_outputs_.at(action.peer).next();
      break;
    case ActionKind::backward:
      backward(chunk, memory, pass);
      if (chunk.before >= 0) {  // a copy: d_input's memory ends here, or belongs to a received gradient and is reused
        MicrobatchMemory& taker = neighbour_memory(chunk.before, microbatch, pass);
        taker.held.d_output = taker.activations->allocate(parameters_.types().activation, row_shape());
        copy(stream_, microbatch.d_input, taker.held.d_output);
      }
      break;
    case ActionKind::send_backward:
      if (pass.alone) break;
      microbatch.sends.push_back(groups_.channel({own, action.peer, false}).send(stream_, microbatch.d_input, 1));
      break;
    case ActionKind::weight_gradients: {
      const TraceRange range("weight gradients of microbatch ", action.microbatch, ", chunk ", action.chunk);
      Run run = make_run(chunk, memory, pass.training);
      run_weight_gradients(run);
      if (completes(microbatch, pass)) run.exchange = &exchange_;
      chunk.stage->complete_gradients(run);
      break;
    }
  }
}

void Engine::forward(Chunk& chunk, MicrobatchMemory& memory, const Pass& pass) {
  const TransformerStage& stage = *chunk.stage;
  Microbatch& microbatch = memory.held;
  const TraceRange range("forward of microbatch ", microbatch.number, ", chunk ", microbatch.chunk);
  Run run = make_run(chunk, memory, pass.training);
  if (pass.visit_layers) {
    microbatch.output = stage.forward_layers(run, microbatch.rows.batch, microbatch.input, microbatch.saved);
    if (stage.last()) pass.visit_layers(run, stage, microbatch.output);
    return;
  }
  // Every tp rank computes the same totals; one of them counts.
  Tensor counted = scratch_->allocate(DType::float64, {kLossTotals});
  fill_zero(stream_, counted);
  const bool by_source = pass.sources.totals.defined();
  Tensor losses, correct;
  const auto allocate_rows = [&] { return run.activations.allocate(parameters_.types().accumulation, {run.rows}); };
  if ((pass.visit || by_source) && stage.last()) losses = allocate_rows();
  if (by_source && stage.last()) correct = allocate_rows();
  microbatch.output =
      stage.forward(run, microbatch.rows.batch, microbatch.input, microbatch.saved, counted, losses, correct);
  if (groups_.at.tp == 0 && stage.last()) add(stream_, pass.totals, counted, pass.totals);
  if (groups_.at.tp == 0 && correct.defined()) add_by_source(pass, microbatch, losses, correct);
  if (!pass.visit || !stage.last()) return;
  finish(stream_);
  pass.visit(microbatch.number, losses);
}

void Engine::add_by_source(const Pass& pass, const Microbatch& microbatch, const Tensor& losses,
                           const Tensor& correct) {
  if (stream_.device == DeviceKind::meta) return;  // it takes no memory
  const SourceTotals& sources = pass.sources;
  for (const SourceTotals::Rows& rows : sources.of(microbatch.number)) {
    const int64_t count = rows.end - rows.begin;
    add_losses(stream_, losses.rows(rows.begin, count), correct.rows(rows.begin, count),
               microbatch.rows.batch.targets.rows(rows.begin, count),
               InOut(sources.totals.rows(rows.source, 1).view({kLossTotals})));
  }
}

void Engine::backward(Chunk& chunk, MicrobatchMemory& memory, const Pass& pass) {
  Microbatch& microbatch = memory.held;
  const TraceRange range("backward of microbatch ", microbatch.number, ", chunk ", microbatch.chunk);
  Run run = make_run(chunk, memory, pass.training);
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
