// The transformer's layers and the stage that holds some of them.
#include "model/transformer.h"

#include "core/trace_range.h"
#include "parallel/bucket_exchange.h"

namespace shiftron {
namespace {

// Orders the run's stream after the arrival of weights.
void await_weights(Run& run, const ParameterSet& set, Part part, int layer = -1) {
  set.await_weights(run.stream, [&](const ParameterSpec& spec) { return spec.part == part && spec.layer == layer; });
}

void complete(Run& run, Part part, int layer = -1) {
  if (run.exchange != nullptr) run.exchange->complete(run.stream, part, layer);
}

std::string layer_name(int layer) {
  return "layers." + std::to_string(layer);
}

Parameter* declare_table(ParameterSet& set, const std::string& name, Part part, const ModelConfig& config, bool tied) {
  return set.declare({.name = name,
                      .shape = {config.vocab, config.hidden},
                      .split_dim = 0,
                      .initial = init_normal(config.init_std),
                      .tied = tied,
                      .part = part});
}

}  // namespace

TransformerLayer::TransformerLayer(ParameterSet& set, const ModelConfig& config, int layer, bool recompute_mlp)
    : attention_norm_(set, layer_name(layer) + ".attention_norm", config.hidden, config.norm_epsilon, layer),
      attention_(set, layer_name(layer) + ".attention", config, layer),
      mlp_norm_(set, layer_name(layer) + ".mlp_norm", config.hidden, config.norm_epsilon, layer),
      mlp_(set, layer_name(layer) + ".mlp", config, layer, recompute_mlp) {}

Residual TransformerLayer::forward(Run& run, const Residual& in, const Tensor& rope, Saved& saved,
                                   AttentionCache* cache) const {
  Residual middle = run.activations.allocate(in.x.dtype(), in.x.shape());
  {
    const TraceRange range("attention");
    ArenaScope scope(run.scratch);
    const Tensor normed = attention_norm_.forward(run, in, saved.attention_norm);
    middle = attention_.forward(run, normed, in.x, rope, saved.attention, middle.x, cache);
  }
  const TraceRange range("mlp");
  const Tensor y = run.activations.allocate(in.x.dtype(), in.x.shape());
  ArenaScope scope(run.scratch);
  const Tensor normed = mlp_norm_.forward(run, middle, saved.mlp_norm);
  return mlp_.forward(run, normed, middle.x, saved.mlp, y);
}

void TransformerLayer::backward(Run& run, InOut d_x, const Tensor& rope, const Saved& saved) const {
  {
    const TraceRange range("mlp");
    ArenaScope scope(run.scratch);
    const Tensor normed = mlp_norm_.output(run, saved.mlp_norm);
    mlp_norm_.backward(run, mlp_.backward(run, d_x.tensor, normed, saved.mlp), saved.mlp_norm, d_x);
  }
  const TraceRange range("attention");
  ArenaScope scope(run.scratch);
  const Tensor normed = attention_norm_.output(run, saved.attention_norm);
  const Tensor d_normed = attention_.backward(run, d_x.tensor, normed, rope, saved.attention);
  attention_norm_.backward(run, d_normed, saved.attention_norm, d_x);
}

TransformerStage::TransformerStage(ParameterSet& set, const ModelConfig& config, const StagePlace& place,
                                   RecomputeKind recompute)
    : set_(&set), config_(config), recompute_(recompute), activation_(set.types().activation), range_(place.layers) {
  Parameter* table = nullptr;
  if (place.first || (place.last && config.tie_embeddings)) {
    const char* name = "embedding.weight";
    table = set.find(name);
    if (table == nullptr) {
      table = declare_table(set, name, Part::embedding, config, config.tie_embeddings && !place.both_ends);
    }
  }
  if (place.first) embedding_ = std::make_unique<VocabularyParallelEmbedding>(table);
  for (int64_t layer = range_.begin; layer < range_.end; ++layer) {
    layers_.push_back(std::make_unique<TransformerLayer>(set, config, static_cast<int>(layer),
                                                         recompute == RecomputeKind::selective));
  }
  if (place.last) {
    final_norm_ =
        std::make_unique<RmsNorm>(set, "final_norm", config.hidden, config.norm_epsilon, -1, Part::final_norm);
    Parameter* head = config.tie_embeddings ? table : declare_table(set, "head.weight", Part::head, config, false);
    loss_ = std::make_unique<VocabularyParallelLoss>(head);
  }
}

void TransformerStage::make_tables(Stream& stream, int64_t positions) {
  const DType dtype = accumulation_type(activation_);
  const Shape shape = {2, positions, config_.head_dim / 2};
  table_ = Buffer(stream.device, shape.count() * size_of(dtype), *stream.ledger, "tables");
  rope_ = table_.tensor(0, dtype, shape);
  rope_table(stream, config_.rope_base, rope_);
  int64_t elements = 0;
  for_each_shift([&](int, int, const KvShift& shift) { elements += shift.table_elements(); });
  taps_ = Buffer(stream.device, elements * size_of(dtype), *stream.ledger, "tables");
  int64_t begin = 0;
  for (const auto& layer : layers_) {
    for (KvShift* shift : layer->attention().shifts()) {
      const int64_t count = shift->table_elements();
      shift->set_table(taps_.tensor(begin * size_of(dtype), dtype, {count}));
      begin += count;
    }
  }
}

void TransformerStage::prepare(Stream& stream) const {
  set_->await_weights(stream, [](const ParameterSpec& spec) { return spec.group == DecayGroup::shift; });
  for_each_shift([&](int, int, const KvShift& shift) { shift.prepare(stream); });
}

void TransformerStage::for_each_shift(
    const std::function<void(int layer, int stream, const KvShift& shift)>& visit) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    int stream = 0;
    for (const KvShift* shift : layers_[i]->attention().shifts()) {
      visit(static_cast<int>(range_.begin) + static_cast<int>(i), stream++, *shift);
    }
  }
}

Tensor TransformerStage::forward(Run& run, const Batch& batch, const Tensor& input, Saved& saved, Tensor totals,
                                 Tensor losses, Tensor correct) const {
  const Residual stream = layers_forward(run, batch, input, saved);
  if (!last()) return sum_residual(run, stream);
  const TraceRange range("head");
  const Tensor normed_rows = final_norm_->forward(run, stream, saved.final_norm);
  loss_->forward(run, normed_rows, batch.targets, saved.loss, totals, losses, correct);
  return {};
}

Tensor TransformerStage::forward_layers(Run& run, const Batch& batch, const Tensor& input, Saved& saved) const {
  return sum_residual(run, layers_forward(run, batch, input, saved));
}

Residual TransformerStage::layers_forward(Run& run, const Batch& batch, const Tensor& input, Saved& saved,
                                          std::vector<AttentionCache>* caches) const {
  if (first()) await_weights(run, *set_, Part::embedding);
  Residual stream = input;
  if (first()) {
    const TraceRange range("embedding");
    stream = embedding_->forward(run, batch.ids, saved.embedding);
  }
  saved.layers.resize(layers_.size());
  saved.recomputed.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int layer = static_cast<int>(range_.begin) + static_cast<int>(i);
    const TraceRange range("layers.", layer);
    await_weights(run, *set_, Part::layer, layer);
    stream =
        recompute_ == RecomputeKind::full
            ? Recompute(*layers_[i]).forward(run, stream.x, rope_, saved.recomputed[i])
            : layers_[i]->forward(run, stream, rope_, saved.layers[i], caches == nullptr ? nullptr : &(*caches)[i]);
  }
  if (!last()) return stream;
  await_weights(run, *set_, Part::final_norm);
  await_weights(run, *set_, config_.tie_embeddings ? Part::embedding : Part::head);
  return stream;
}

void TransformerStage::visit_attention(Run& run, const Saved& saved, const AttentionVisitor& visit) const {
  CHECK(recompute_ != RecomputeKind::full, "fully recomputed layers keep no attention tensors");
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Attention::Saved& of_layer = saved.layers[i].attention;
    ArenaScope scope(run.scratch);
    visit(static_cast<int>(range_.begin) + static_cast<int>(i), layers_[i]->attention().attending(run, rope_, of_layer),
          of_layer.log_sum_exp);
  }
}

Tensor TransformerStage::backward(Run& run, const Tensor& d_output, const Saved& saved) const {
  Tensor d_x = d_output;
  if (last()) {
    const TraceRange range("head");
    const Tensor d_normed = loss_->backward(run, saved.loss);
    d_x = run.activations.allocate(activation_, d_normed.shape());
    fill_zero(run.stream, d_x);
    final_norm_->backward(run, d_normed, saved.final_norm, InOut(d_x));
    complete(run, Part::head);
    complete(run, Part::final_norm);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    const int layer = static_cast<int>(range_.begin) + static_cast<int>(i);
    const TraceRange range("layers.", layer);
    if (recompute_ == RecomputeKind::full)
      Recompute(*layers_[i]).backward(run, InOut(d_x), rope_, saved.recomputed[i]);
    else
      layers_[i]->backward(run, InOut(d_x), rope_, saved.layers[i]);
    complete(run, Part::layer, layer);
  }
  if (!first()) return d_x;
  const TraceRange range("embedding");
  embedding_->backward(run, d_x, saved.embedding);
  complete(run, Part::embedding);
  return {};
}

void TransformerStage::complete_gradients(Run& run) const {
  if (last()) {
    complete(run, Part::head);
    complete(run, Part::final_norm);
  }
  for (int64_t layer = range_.end; layer-- > range_.begin;) complete(run, Part::layer, static_cast<int>(layer));
  if (first()) complete(run, Part::embedding);
}

Tensor TransformerStage::decode(Run& run, const Tensor& ids, const Tensor& input,
                                std::vector<AttentionCache>& caches) const {
  Saved unused;
  return sum_residual(run, layers_forward(run, {.ids = ids, .targets = {}}, input, unused, &caches));
}

Tensor TransformerStage::logits(Run& run, const Tensor& x) const {
  CHECK(last(), "logits are computed on the last stage");
  RmsNorm::Saved unused;
  return loss_->unrounded_logits(run, final_norm_->forward(run, x, unused));
}

Tensor TransformerStage::normed(Run& run, const Tensor& x) const {
  CHECK(last(), "the last norm is on the last stage");
  RmsNorm::Saved unused;
  return final_norm_->forward(run, x, unused);
}

Tensor TransformerStage::precise_logits(Run& run, const Tensor& normed_rows, Range range) const {
  CHECK(last(), "logits are computed on the last stage");
  return loss_->precise_logits(run, normed_rows, range);
}

std::vector<AttentionCache> TransformerStage::make_caches(Arena& arena, int64_t capacity) const {
  std::vector<AttentionCache> caches;
  for (const auto& layer : layers_) caches.push_back(layer->attention().make_cache(arena, activation_, capacity));
  return caches;
}

}  // namespace shiftron
