// Decoding and sampling.
#include "evaluate/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "checkpoint/restore.h"
#include "core/philox.h"
#include "data/tokenizer.h"
#include "kernels/element.h"
#include "train/engine.h"

namespace shiftron {

struct Decoder::Implementation {
  RunConfig config;
  Groups groups;
  Stream stream;
  ParameterSet parameters;
  TransformerStage stage;
  Arena states_arena, activations, scratch;
  WeightGradientQueue unused;
  std::vector<AttentionState> states;
  int64_t fed = 0;

  Implementation(const RunConfig& run_config, Groups the_groups, DeviceKind device, int threads, Ledger& ledger,
                 const MemoryPlan& plan, int64_t capacity)
      : config(run_config), groups(std::move(the_groups)),
        stream{.device = device, .ledger = &ledger, .threads = threads},
        parameters(groups.layout, groups.at, number_types(config.train.precision)),
        stage(parameters, config.model, {0, config.model.layers}, RecomputeKind::none),
        states_arena(device, "states", plan, ledger, "cache"),
        activations(device, "activations", plan, ledger, "activations"),
        scratch(device, "scratch", plan, ledger, "scratch") {
    parameters.allocate(device, ledger, false);
    stage.make_tables(stream, ledger, capacity);
    states = stage.make_states(states_arena, capacity);
  }

  // Logits of this rank's vocabulary, [rows, local vocab]; valid until the next call.
  Tensor feed(const std::vector<int32_t>& ids) {
    const auto rows = static_cast<int64_t>(ids.size());
    activations.release();
    scratch.release();
    const auto allocate = [&] { return activations.allocate(DType::int32, {rows}); };
    const Tensor tokens = allocate();
    Run run{.stream = stream, .activations = activations, .scratch = scratch, .groups = groups, .training = false,
            .gather_rows = false, .rows = rows, .sequence_length = rows,
            .documents = {allocate(), allocate(), allocate()}, .loss_scale = 1, .weight_gradients = unused};
    if (stream.device == DeviceKind::cpu) {
      std::ranges::copy(ids, tokens.data<int32_t>());
      std::fill_n(run.documents.attention_start.data<int32_t>(), rows, 0);
      std::fill_n(run.documents.shift_start.data<int32_t>(), rows, std::numeric_limits<int32_t>::min() / 2);
      std::iota(run.documents.positions.data<int32_t>(), run.documents.positions.data<int32_t>() + rows,
                static_cast<int32_t>(fed));
    }
    fed += rows;
    return stage.decode(run, tokens, states);
  }

  MemoryPlan peaks() const {
    return {{"states", states_arena.peak()}, {"activations", activations.peak()}, {"scratch", scratch.peak()}};
  }
};

namespace {

ParallelLayout decoding_layout(int ranks) { return {.tp = ranks, .cp = 1, .dp = 1, .pp = 1}; }

}  // namespace

Decoder::Decoder(const CheckpointModel& model, Communicator& world, int threads, int64_t capacity, int64_t chunk)
    : Decoder(model.config, [&](ParameterSet& set) { load_parameters(model.directory, set); }, world, threads, capacity,
              chunk) {}

Decoder::Decoder(const RunConfig& config, const std::function<void(ParameterSet&)>& fill, Communicator& world,
                 int threads, int64_t capacity, int64_t chunk)
    : ledger_(std::make_unique<Ledger>()) {
  const ParallelLayout layout = decoding_layout(world.size());
  const int64_t kv_heads = config.model.kv_heads;
  MemoryPlan plan;
  {
    Ledger planned;
    const auto meta_world = make_meta_world(world.rank(), world.size());
    Implementation meta(config, make_groups(*meta_world, layout, kv_heads), DeviceKind::meta, threads, planned, {},
                        capacity);
    meta.feed(std::vector<int32_t>(static_cast<size_t>(std::min(chunk, capacity))));
    plan = meta.peaks();
  }
  implementation_ = std::make_unique<Implementation>(config, make_groups(world, layout, kv_heads), DeviceKind::cpu,
                                                     threads, *ledger_, plan, capacity);
  choose_bfloat16_products(config.train.precision, world, implementation_->stream);
  fill(implementation_->parameters);
}

Decoder::~Decoder() = default;

void Decoder::restart() {
  implementation_->fed = 0;
  for (AttentionState& state : implementation_->states) state.length = 0;
}

void Decoder::start_profile() {
  ledger_->clear_work();
  implementation_->stream.timed = true;
}

std::vector<std::vector<double>> Decoder::feed(const std::vector<int32_t>& ids) {
  Implementation& decoder = *implementation_;
  const Tensor logits = decoder.feed(ids);
  const int64_t rows = logits.extent(0);
  const int64_t local = logits.extent(1);
  const int64_t vocab = decoder.config.model.vocab;
  const int shards = decoder.groups.tp->size();
  std::vector<std::vector<double>> result;
  for (int64_t row = 0; row < rows; ++row) {
    // Shards may be uneven: each rank adds its own columns to zeros.
    std::vector<double>& whole = result.emplace_back(static_cast<size_t>(vocab));
    double* values = whole.data() + decoder.stage.vocabulary().begin;
    for_type(logits.dtype(), [&](auto type) {
      const auto* from = logits.data<decltype(type)>() + row * logits.stride(0);
      for (int64_t i = 0; i < local; ++i) values[i] = to_accumulate(from[i]);
    });
    if (shards == 1) continue;
    const Tensor view(whole.data(), DType::float64, {vocab}, DeviceKind::cpu);
    decoder.groups.tp->all_reduce(decoder.stream, InOut(view), Reduction::sum).wait();
  }
  return result;
}

namespace {

int32_t choose(const std::vector<double>& logits, int64_t known, double temperature, double draw) {
  const auto end = logits.begin() + known;
  const auto best = std::max_element(logits.begin(), end);
  if (temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  double total = 0;
  for (auto it = logits.begin(); it != end; ++it) total += std::exp((*it - *best) / temperature);
  double left = draw * total;
  for (auto it = logits.begin(); it != end; ++it) {
    left -= std::exp((*it - *best) / temperature);
    if (left <= 0) return static_cast<int32_t>(it - logits.begin());
  }
  return static_cast<int32_t>(known - 1);
}

}  // namespace

std::vector<int32_t> continue_tokens(Decoder& decoder, const std::vector<int32_t>& prompt,
                                     const GenerateOptions& options, int64_t vocab, int32_t end,
                                     const std::function<void(int32_t)>& show) {
  CHECK(!prompt.empty() && options.chunk > 0, "nothing to continue: ", prompt.size(), " tokens, chunk ", options.chunk);
  const auto length = static_cast<int64_t>(prompt.size());
  std::vector<double> logits;
  for (int64_t begin = 0; begin < length; begin += options.chunk) {
    const int64_t behind = std::min(length, begin + options.chunk);
    logits = decoder.feed({prompt.begin() + begin, prompt.begin() + behind}).back();
  }
  const Philox random(options.seed, "generate");
  std::vector<int32_t> made;
  while (static_cast<int64_t>(made.size()) < options.tokens) {
    if (!made.empty()) logits = decoder.feed({made.back()}).back();
    const int32_t next = choose(logits, vocab, options.temperature, random.uniform(made.size()));
    if (next == end) break;
    made.push_back(next);
    if (show) show(next);
  }
  return made;
}

std::vector<int32_t> generate(const CheckpointModel& model, const std::string& prompt, const GenerateOptions& options,
                              Communicator& world, int threads, const std::function<void(const std::string&)>& show) {
  const Tokenizer tokenizer(model.content.tokenizer_model, model.directory);
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  // Where documents are not cut apart, training shows a document's first token behind the end of another one.
  if (ids.empty() || !model.config.data.document_reset) ids.insert(ids.begin(), tokenizer.end_of_document());
  Decoder decoder(model, world, threads, static_cast<int64_t>(ids.size()) + options.tokens, options.chunk);
  return continue_tokens(decoder, ids, options, tokenizer.vocab_size(), tokenizer.end_of_document(),
                         [&](int32_t token) {
                           if (show) show(tokenizer.text_of(token));
                         });
}

}  // namespace shiftron
