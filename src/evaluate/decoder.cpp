// Decodes with a model of its own or with that of an engine.
#include "evaluate/decoder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "checkpoint/restore.h"
#include "core/event.h"
#include "kernels/kernels.h"
#include "kernels/libraries.h"
#include "train/device.h"
#include "train/trainer.h"

namespace shiftron {

namespace {

enum Row { kIds, kAttentionStart, kShiftStart, kPositions, kRowKinds };

}  // namespace

// Weights of a checkpoint.
struct Decoder::Own {
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<Queue> queue;  // on a GPU
  Groups groups;
  Stream stream;
  Libraries libraries;
  ParameterSet parameters;
  TransformerStage stage;

  Own(const RunConfig& config, std::unique_ptr<Ledger> the_ledger, std::unique_ptr<Queue> the_queue, Groups the_groups,
      const Stream& where, int64_t capacity)
      : ledger(std::move(the_ledger)),
        queue(std::move(the_queue)),
        groups(std::move(the_groups)),
        stream(where),
        libraries(stream),
        parameters(groups.layout, groups.at, number_types(config.train.precision)),
        stage(parameters, config.model, {.layers = {0, config.model.layers}}, RecomputeKind::none) {
    parameters.allocate(stream, false);
    stage.make_tables(stream, capacity);
  }
};

// What decoding needs in addition to a model.
struct Decoder::Implementation {
  Stream& stream;
  const Groups& groups;
  ParameterSet& parameters;
  const std::vector<ModelPiece> pieces;
  ControlPlane* const stages;    // ranks of all stages; null if this rank has all pieces
  const TransformerStage* head;  // the piece with the head; null if it is on another stage
  Arena cache_arena, activations, operands, scratch;
  Buffer row_memory, logit_memory;
  Tensor pinned_rows;    // [4, chunk] int32: ids, attention_start, shift_start, positions
  Tensor pinned_logits;  // [1, vocab] A
  WeightGradientQueue unused;
  std::vector<std::vector<AttentionCache>> caches;  // of each piece here
  const int64_t hidden;
  const bool shift_stops_at_documents;
  int64_t fed = 0;

  Implementation(Stream& its_stream, const Groups& its_groups, ParameterSet& set, std::vector<ModelPiece> of_model,
                 ControlPlane* its_stages, const ModelConfig& config, const MemoryPlan& plan, int64_t capacity,
                 int64_t chunk)
      : stream(its_stream),
        groups(its_groups),
        parameters(set),
        pieces(std::move(of_model)),
        stages(its_stages),
        head(pieces.back().here),
        cache_arena(stream, "states", plan, "cache"),
        activations(stream, "activations", plan, "activations"),
        operands(stream, "operands", plan, "activations"),
        scratch(stream, "scratch", plan, "scratch"),
        hidden(config.hidden),
        shift_stops_at_documents(config.shift.reset == ShiftReset::always) {
    for (const ModelPiece& piece : pieces) {
      caches.push_back(piece.here == nullptr ? std::vector<AttentionCache>()
                                             : piece.here->make_caches(cache_arena, capacity));
    }
    const Shape rows = {kRowKinds, chunk};
    row_memory = staging_buffer(stream, rows.count() * size_of(DType::int32));
    pinned_rows = row_memory.tensor(0, DType::int32, rows);
    if (head == nullptr) return;
    const DType type = parameters.types().accumulation;
    logit_memory = staging_buffer(stream, config.vocab * size_of(type));
    pinned_logits = logit_memory.tensor(0, type, {1, config.vocab});
  }
  Implementation(Own& own, const ModelConfig& config, const MemoryPlan& plan, int64_t capacity, int64_t chunk)
      : Implementation(own.stream, own.groups, own.parameters, {{0, &own.stage}}, nullptr, config, plan, capacity,
                       chunk) {}
  Implementation(Engine& engine, ControlPlane* its_stages, const ModelConfig& config, const MemoryPlan& plan,
                 int64_t capacity, int64_t chunk)
      : Implementation(engine.stream(), engine.groups(), engine.parameters(), engine.pieces(), its_stages, config, plan,
                       capacity, chunk) {}

  // Runs the rows through the model's pieces in order; returns the output of the last layer on this rank.
  Tensor through_pieces(Run& run, const Tensor& tokens) {
    Tensor x;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [stage, here] = pieces[i];
      if (here == nullptr) continue;
      if (i > 0 && pieces[i - 1].here == nullptr) {
        x = activations.allocate(parameters.types().activation, {run.rows, hidden});
        groups.channel({pieces[i - 1].stage, stage, true}).recv(stream, x, 0).wait(stream);
      }
      x = here->decode(run, tokens, x, caches[i]);
      if (i + 1 < pieces.size() && pieces[i + 1].here == nullptr) {
        groups.channel({stage, pieces[i + 1].stage, true}).send(stream, x, 1).wait(stream);
      }
    }
    return x;
  }

  Run run_of(int64_t rows, const Documents& documents) {
    return {.stream = stream,
            .activations = activations,
            .operands = operands,
            .scratch = scratch,
            .groups = groups,
            .training = false,
            .gather_rows = false,
            .rows = rows,
            .sequence_length = rows,
            .documents = documents,
            .loss_scale = 1,
            .microbatch = 0,
            .weight_gradients = unused};
  }

  // On the rank with the head, returns the output of the last layer, [rows, hidden]; valid until the next call. No work
  // may be in flight when it is called.
  Tensor feed(const std::vector<int32_t>& ids) {
    const auto rows = static_cast<int64_t>(ids.size());
    activations.release();
    scratch.release();
    const auto row = [&](int kind) {
      const Tensor values = activations.allocate(DType::int32, {rows});
      upload(stream, pinned_rows.view({kRowKinds * pinned_rows.extent(1)}).rows(kind * rows, rows), values);
      return values;
    };
    if (stream.device != DeviceKind::meta) {
      int32_t* const first = pinned_rows.host_data<int32_t>();
      std::ranges::copy(ids, first + kIds * rows);
      std::fill_n(first + kAttentionStart * rows, rows, 0);
      std::fill_n(first + kShiftStart * rows, rows, std::numeric_limits<int32_t>::min() / 2);
      std::iota(first + kPositions * rows, first + (kPositions + 1) * rows, static_cast<int32_t>(fed));
    }
    const Tensor tokens = row(kIds);
    Run run = run_of(rows, {row(kAttentionStart), row(kShiftStart), row(kPositions)});
    fed += rows;
    return through_pieces(run, tokens);
  }

  // Logits of row `row` of feed()'s result over the whole vocabulary, on the host of every rank.
  std::vector<double> logits(const Tensor& x, int64_t row) {
    std::vector<double> values;
    if (head != nullptr) {
      const Tensor whole = logits_of_head(x.rows(row, 1));
      download(stream, whole, pinned_logits);
      finish(stream);
      const auto widened = [&](const auto* from) { return std::vector<double>(from, from + pinned_logits.count()); };
      values = pinned_logits.dtype() == DType::float64 ? widened(pinned_logits.host_data<double>())
                                                       : widened(pinned_logits.host_data<float>());
    } else {
      finish(stream);
    }
    if (stages == nullptr) return values;
    const auto* const bytes = reinterpret_cast<const char*>(values.data());
    const std::string received = stages->broadcast_text({bytes, values.size() * sizeof(double)}, pieces.back().stage);
    values.resize(received.size() / sizeof(double));
    std::memcpy(values.data(), received.data(), received.size());
    return values;
  }

  // Shards may be uneven: each rank adds its own columns to zeros.
  Tensor logits_of_head(const Tensor& x) {
    ArenaScope scope(activations);
    scratch.release();
    Run run = run_of(1, {});
    const Tensor own_logits = head->logits(run, x);
    const Tensor whole = scratch.allocate(pinned_logits.dtype(), pinned_logits.shape());
    const Range own = head->vocabulary();
    fill_zero(stream, whole);
    copy(stream, own_logits, whole.slice(1, own.begin, own.size()));
    groups.tp->all_reduce(stream, InOut(whole), Reduction::sum).wait(stream);
    return whole;
  }

  // On meta: measures the memory of any feed of `rows` rows.
  void plan_rows(int64_t rows) {
    const Tensor x = feed(std::vector<int32_t>(static_cast<size_t>(rows)));
    if (head != nullptr) logits_of_head(x.rows(0, 1));
  }

  MemoryPlan peaks() const {
    return {{"states", cache_arena.peak()},
            {"activations", activations.peak()},
            {"operands", operands.peak()},
            {"scratch", scratch.peak()}};
  }
};

namespace {

ParallelLayout decoding_layout(int ranks) {
  return {.tp = ranks, .cp = 1, .dp = 1, .pp = 1};
}

}  // namespace

Decoder::Decoder(const CheckpointModel& model, HostCommunicator& world, const HostShare& share, int64_t capacity,
                 int64_t chunk)
    : Decoder(
          model.config,
          [&](ParameterSet& set) {
            Log log(world.rank());
            load_parameters(model.directory, set,
                            {.threads = share.threads, .log = world.rank() == 0 ? &log : nullptr});
          },
          world, share, capacity, chunk) {}

Decoder::Decoder(const RunConfig& config, const std::function<void(ParameterSet&)>& fill, HostCommunicator& world,
                 const HostShare& share, int64_t capacity, int64_t chunk) {
  const ParallelLayout layout = decoding_layout(world.size());
  const int64_t kv_heads = config.model.kv_heads;
  const int64_t most = std::min(chunk, capacity);
  MemoryPlan plan;
  {
    auto planned = std::make_unique<Ledger>();
    const Stream stream = planning_stream(config, share.threads, *planned);
    const auto meta_world = make_meta_world(world.rank(), world.size());
    Own model(config, std::move(planned), nullptr, make_groups(*meta_world, layout, kv_heads), stream, capacity);
    Implementation meta(model, config.model, {}, capacity, most);
    meta.plan_rows(most);
    plan = meta.peaks();
  }
  auto ledger = std::make_unique<Ledger>();
  Stream stream{.ledger = ledger.get()};
  std::unique_ptr<Queue> queue = start_device(config, share, world, stream).queue;
  own_ = std::make_unique<Own>(config, std::move(ledger), std::move(queue),
                               make_groups(world, layout, kv_heads, {}, stream.device), stream, capacity);
  implementation_ = std::make_unique<Implementation>(*own_, config.model, plan, capacity, most);
  fill(own_->parameters);
  own_->stage.prepare(own_->stream);
}

namespace {

// Calls `made` with a meta engine like that of such a rank in training.
void with_meta_engine(const RunConfig& config, const ParallelLayout& layout, int rank, int threads,
                      const std::function<void(Engine& engine)>& made) {
  Ledger planned;
  Stream stream = planning_stream(config, threads, planned);
  const auto world = make_meta_world(rank, layout.ranks());
  Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), stream, {}, false);
  made(engine);
}

}  // namespace

Decoder::Decoder(const RunConfig& config, Engine& engine, ControlPlane* stages, int64_t capacity, int64_t chunk) {
  CHECK(capacity <= config.train.sequence_length, "room for ", capacity, " tokens, samples are of ",
        config.train.sequence_length);
  const int64_t most = std::min(chunk, capacity);
  const Groups& groups = engine.groups();
  CHECK((stages != nullptr) == (groups.layout.pp > 1), "the stages of ", groups.layout.pp, " that decode");
  MemoryPlan plan;
  with_meta_engine(config, groups.layout, groups.layout.rank(groups.at), engine.stream().cpu.threads,
                   [&](Engine& meta_engine) {
                     Implementation meta(meta_engine, nullptr, config.model, {}, capacity, most);
                     meta.plan_rows(most);
                     plan = meta.peaks();
                   });
  implementation_ = std::make_unique<Implementation>(engine, stages, config.model, plan, capacity, most);
}

void Decoder::plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, int64_t capacity,
                        int64_t chunk, Ledger& planned) {
  const int64_t most = std::min(chunk, capacity);
  with_meta_engine(config, layout, rank, threads, [&](Engine& engine) {
    const Ledger engine_alone = *engine.stream().ledger;
    Implementation meta(engine, nullptr, config.model, {}, capacity, most);
    meta.plan_rows(most);
    add_planned_memory(engine.stream(), engine_alone, planned);
  });
}

Decoder::~Decoder() = default;

void Decoder::weights_changed() {
  implementation_->parameters.await_weights(implementation_->stream);
  for (const ModelPiece& piece : implementation_->pieces) {
    if (piece.here != nullptr) piece.here->prepare(implementation_->stream);
  }
}

const Ledger& Decoder::ledger() const {
  return *implementation_->stream.ledger;
}

void Decoder::restart() {
  implementation_->fed = 0;
  for (std::vector<AttentionCache>& of_piece : implementation_->caches) {
    for (AttentionCache& cache : of_piece) cache.length = 0;
  }
}

bool Decoder::shift_stops_at_documents() const {
  return implementation_->shift_stops_at_documents;
}

void Decoder::begin_document() {
  for (std::vector<AttentionCache>& of_piece : implementation_->caches) {
    for (AttentionCache& cache : of_piece) cache.shift_begins = true;
  }
}

void Decoder::start_profile() {
  implementation_->stream.ledger->clear_work();
  implementation_->stream.timed = true;
}

std::vector<std::vector<double>> Decoder::feed(const std::vector<int32_t>& ids) {
  const Tensor x = implementation_->feed(ids);
  std::vector<std::vector<double>> result;
  for (int64_t row = 0; row < std::ssize(ids); ++row) result.push_back(implementation_->logits(x, row));
  return result;
}

std::vector<double> Decoder::feed_last(const std::vector<int32_t>& ids) {
  const Tensor x = implementation_->feed(ids);
  return implementation_->logits(x, std::ssize(ids) - 1);
}

}  // namespace shiftron
