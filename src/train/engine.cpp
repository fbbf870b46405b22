// Executes pipeline actions; the model's modules do the rest.
#include "train/engine.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/kernels.h"

namespace shiftron {

// What lives from a microbatch's forward to its backward.
struct Engine::Microbatch {
  int number = -1;  // in the step; -1: none yet
  Arena* arena = nullptr;
  Batch batch;
  Documents documents;
  Tensor input, output, d_output, d_input;
  TransformerStage::Saved saved;
  std::vector<Work> sends;
};

int microbatches_of_step(const RunConfig& config, const ParallelLayout& layout) {
  return static_cast<int>(config.train.global_batch / (config.train.micro_batch * layout.dp));
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

void choose_bfloat16_products(Precision precision, Communicator& world, Stream& stream) {
  if (precision != Precision::bf16) return;
  const bool first = world.rank() == 0;
  std::string choice = "00";
  if (first && bfloat16_matmul_pays(stream)) choice[0] = '1';
  if (first && bfloat16_tiles_pay(stream)) choice[1] = '1';
  choice = world.broadcast_text(choice, 0);
  stream.bfloat16_matmul = choice.at(0) == '1';
  stream.bfloat16_tiles = choice.at(1) == '1';
}

DType product_type(Precision precision, const Stream& stream) {
  return precision == Precision::bf16 && stream.bfloat16_matmul ? DType::bfloat16 : DType::float32;
}

Engine::Engine(const RunConfig& config, Groups groups, Stream& stream, const MemoryPlan& plan, bool training)
    : config_(config),
      groups_(std::move(groups)),
      stream_(stream),
      parameters_(groups_.layout, groups_.at, number_types(config.train.precision)) {
  const ParallelSection& parallel = config.parallel;
  const int stage = groups_.at.pp;
  const std::vector<Range> layers = stage_layers(config.model.layers, parallel.pp, parallel.stage_layers,
                                                 head_in_layers(config.model, config.train.sequence_length));
  stage_ = std::make_unique<TransformerStage>(parameters_, config.model, layers[stage], parallel.recompute);
  parameters_.allocate(stream.device, *stream.ledger, training);
  stage_->make_tables(stream, *stream.ledger, config.train.sequence_length);
  const int microbatches = microbatches_of_step(config, groups_.layout);
  const int in_flight = training ? most_in_flight(parallel.pipeline, parallel.pp, stage, microbatches) : 1;
  const int arenas = stream.device == DeviceKind::meta ? 1 : in_flight;
  for (int i = 0; i < arenas; ++i) {
    arenas_.push_back(
        std::make_unique<Arena>(stream.device, "activations", plan, *stream.ledger, "activations", in_flight / arenas));
  }
  scratch_ = std::make_unique<Arena>(stream.device, "scratch", plan, *stream.ledger, "scratch");
  if (stream.device == DeviceKind::meta) return;
  const size_t rows = static_cast<size_t>(config.train.micro_batch * config.train.sequence_length);
  host_batch_.ids.resize(rows);
  host_batch_.targets.resize(rows);
  host_batch_.document_starts.resize(rows);
}

MemoryPlan Engine::arena_peaks() const {
  return {{arenas_.front()->name(), arenas_.front()->peak()}, {scratch_->name(), scratch_->peak()}};
}

Run Engine::make_run(Arena& arena, bool training) {
  const TrainSection& train = config_.train;
  return Run{.stream = stream_,
             .activations = arena,
             .scratch = *scratch_,
             .groups = groups_,
             .training = training,
             .gather_rows = true,
             .rows = train.micro_batch * train.sequence_length,
             .sequence_length = train.sequence_length,
             .documents = {},
             .loss_scale = 1.0 / static_cast<double>(train.global_batch * train.sequence_length),
             .weight_gradients = weight_gradients_};
}

int64_t Engine::load_batch(Microbatch& microbatch, const HostBatch& batch) {
  const int64_t rows = config_.train.micro_batch * config_.train.sequence_length;
  const auto allocate = [&] { return microbatch.arena->allocate(DType::int32, {rows}); };
  microbatch.batch = {allocate(), allocate()};
  microbatch.documents = {allocate(), allocate(), allocate()};
  if (stream_.device == DeviceKind::meta) return 0;
  std::ranges::copy(batch.ids, microbatch.batch.ids.data<int32_t>());
  std::ranges::copy(batch.targets, microbatch.batch.targets.data<int32_t>());
  find_documents(batch.document_starts, config_.train.sequence_length, config_.data.document_reset,
                 config_.model.shift.reset, microbatch.documents.attention_start.data<int32_t>(),
                 microbatch.documents.shift_start.data<int32_t>(), microbatch.documents.positions.data<int32_t>());
  // A row at position p of what it attends to sees p + 1 rows.
  const int32_t* positions = microbatch.documents.positions.data<int32_t>();
  return std::accumulate(positions, positions + rows, rows);
}

int64_t Engine::accumulate_gradients(int microbatches, const BatchReader& read, Tensor totals) {
  return run_schedule(microbatches, read, totals, true, {});
}

void Engine::evaluate(int microbatches, const BatchReader& read, Tensor totals, const LossVisitor& visit) {
  run_schedule(microbatches, read, totals, false, visit);
}

int64_t Engine::run_schedule(int microbatches, const BatchReader& read, Tensor totals, bool training,
                             const LossVisitor& visit) {
  const int stage = groups_.at.pp, stages = config_.parallel.pp;
  // On meta one microbatch stands for all.
  const int stepped = stream_.device == DeviceKind::meta ? 1 : microbatches;
  const Ledger::Repeat repeat(*stream_.ledger, microbatches / stepped);
  const std::vector<Action> actions = training ? make_schedule(config_.parallel.pipeline, stages, stage, stepped)
                                               : make_forward_schedule(stages, stage, stepped);
  const ArenaAssignment assignment = assign_arenas(actions, stepped);
  CHECK(assignment.arenas <= static_cast<int>(arenas_.size()), assignment.arenas, " arenas are needed, ",
        arenas_.size(), " are there");
  std::vector<Microbatch> in_flight(arenas_.size());  // in each arena
  int64_t attended = 0;
  for (const Action& action : actions) {
    const auto index = static_cast<size_t>(assignment.arena_of[action.microbatch]);
    Microbatch& microbatch = in_flight[index];
    if (microbatch.number != action.microbatch) {
      microbatch = Microbatch();  // the one before waits for its sends
      microbatch.number = action.microbatch;
      microbatch.arena = arenas_[index].get();
      microbatch.arena->release();
      const auto start = std::chrono::steady_clock::now();
      read(action.microbatch, host_batch_);
      attended += load_batch(microbatch, host_batch_);
      stream_.ledger->times.data += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    scratch_->release();
    Run run = make_run(*microbatch.arena, training);
    run.documents = microbatch.documents;
    const DType dtype = parameters_.types().activation;
    const auto allocate_rows = [&] {
      return microbatch.arena->allocate(dtype, {run.local_rows(), config_.model.hidden});
    };
    switch (action.kind) {
      case ActionKind::recv_forward:
        microbatch.input = allocate_rows();
        groups_.pp->recv(stream_, microbatch.input, stage - 1).wait();
        break;
      case ActionKind::forward: {
        Tensor losses;
        if (visit && stage_->last()) {
          losses = microbatch.arena->allocate(parameters_.types().accumulation, {run.rows});
        }
        // Every tp rank computes the same totals; one of them counts.
        Tensor counted = scratch_->allocate(DType::float64, {2});
        fill_zero(stream_, counted);
        microbatch.output = stage_->forward(run, microbatch.batch, microbatch.input, microbatch.saved, counted, losses);
        if (groups_.at.tp == 0 && stage_->last()) add(stream_, totals, counted, totals);
        if (losses.defined()) visit(action.microbatch, host_batch_, losses);
        break;
      }
      case ActionKind::send_forward:
        microbatch.sends.push_back(groups_.pp->send(stream_, microbatch.output, stage + 1));
        break;
      case ActionKind::recv_backward:
        microbatch.d_output = allocate_rows();
        groups_.pp->recv(stream_, microbatch.d_output, stage + 1).wait();
        break;
      case ActionKind::backward:
        microbatch.d_input = stage_->backward(run, microbatch.d_output, microbatch.saved);
        break;
      case ActionKind::send_backward:
        microbatch.sends.push_back(groups_.pp->send(stream_, microbatch.d_input, stage - 1));
        break;
    }
  }
  for (Microbatch& microbatch : in_flight) {
    for (Work& send : microbatch.sends) send.wait();
  }
  return attended;
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
    if (spec.name != "embedding.weight" && spec.name != "head.weight") count.outside_embedding += spec.shape.count();
  }
  return count;
}

void find_documents(const std::vector<uint8_t>& document_starts, int64_t sequence_length, bool document_reset,
                    ShiftReset shift_reset, int32_t* attention_start, int32_t* shift_start, int32_t* positions) {
  const int64_t rows = static_cast<int64_t>(document_starts.size());
  for (int64_t sample = 0; sample < rows; sample += sequence_length) {
    int64_t document = sample;
    for (int64_t row = sample; row < sample + sequence_length; ++row) {
      if (document_starts[row] != 0) document = row;
      const int64_t attention = document_reset ? document : sample;
      attention_start[row] = static_cast<int32_t>(attention);
      positions[row] = static_cast<int32_t>(row - attention);
      const int64_t shift = shift_reset == ShiftReset::automatic ? attention
                            : shift_reset == ShiftReset::always  ? document
                                                                 : sample;
      shift_start[row] = static_cast<int32_t>(shift);
    }
  }
}

}  // namespace shiftron
