// Attention: forward, with or without a cache, and backward.
#include "model/attention.h"

#include <utility>

#include "model/shared_rows.h"

namespace shiftron {
namespace {

Parameter* declare_heads(ParameterSet& set, const std::string& name, int64_t heads, const ModelConfig& config,
                         int layer, bool adjacent) {
  return set.declare({.name = name,
                      .shape = {heads, config.head_dim, config.hidden},
                      .split_dim = 0,
                      .initial = init_normal(config.init_std),
                      .layer = layer},
                     adjacent);
}

// The last rows of `carried` followed by `raw` become `carried`.
void carry(Stream& stream, const Tensor& raw, Tensor carried) {
  if (!carried.defined()) return;
  const int64_t kept = carried.extent(0);
  const int64_t fresh = std::min(raw.extent(0), kept);
  for (int64_t row = 0; row + fresh < kept; ++row) {
    copy(stream, carried.rows(row + fresh, 1).merge_last(), carried.rows(row, 1).merge_last());
  }
  copy(stream, raw.rows(raw.extent(0) - fresh, fresh).merge_last(), carried.rows(kept - fresh, fresh).merge_last());
}

}  // namespace

Attention::Attention(ParameterSet& set, const std::string& prefix, const ModelConfig& config, int layer)
    : head_dim_(config.head_dim),
      query_(declare_heads(set, prefix + ".query.weight", config.heads, config, layer, false)),
      key_(declare_heads(set, prefix + ".key.weight", config.kv_heads, config, layer, true)),
      value_(declare_heads(set, prefix + ".value.weight", config.kv_heads, config, layer, true)),
      query_shift_(set, prefix, "query", config.heads, config.shift.query, config.shift, true, layer),
      key_shift_(set, prefix, "key", config.kv_heads, config.shift.key, config.shift, true, layer),
      value_shift_(set, prefix, "value", config.kv_heads, config.shift.value, config.shift, false, layer),
      out_weight_(set.declare({.name = prefix + ".out.weight",
                               .shape = {config.hidden, config.heads, config.head_dim},
                               .split_dim = 1,
                               .initial = init_normal(config.init_std),
                               .layer = layer})),
      projections_(set, {query_, key_, value_}, config.hidden, SplitFeatures::output),
      out_(set, {out_weight_}, out_weight_->box.extent[1] * config.head_dim, SplitFeatures::input) {}

Attention::Streams Attention::split(const Tensor& raw) const {
  const int64_t heads = query_->box.extent[0];
  const int64_t kv_heads = key_->box.extent[0];
  const auto part = [&](int64_t begin, int64_t count) {
    return raw.slice(1, begin * head_dim_, count * head_dim_).split_last(count, head_dim_);
  };
  return {part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads)};
}

Attention::Streams Attention::shift(Run& run, const Tensor& raw, const Tensor& rope, const Tensor& memory) const {
  const Streams from = split(raw);
  Streams to = split(memory);
  if (value_shift_.is_identity()) to.v = from.v;
  shift(run, from, rope, {}, to);
  return to;
}

void Attention::shift(Run& run, const Streams& raw, const Tensor& rope, const Streams& carried,
                      const Streams& to) const {
  std::vector<KvShift::Forward> streams = {{query_shift_, raw.q, to.q, carried.q},
                                           {key_shift_, raw.k, to.k, carried.k}};
  if (!value_shift_.is_identity()) streams.push_back({value_shift_, raw.v, to.v, carried.v});
  KvShift::forward(run, rope, streams);
}

Attention::Streams Attention::attending(Run& run, const Tensor& rope, const Saved& saved) const {
  CHECK(!run.documents.copied_from.defined(), "decoding does not support rows that documents share");
  return shift(run, saved.raw, rope, run.scratch.allocate(saved.raw.dtype(), saved.raw.shape()));
}

Residual Attention::forward(Run& run, const Tensor& x_local, const Tensor& residual, const Tensor& rope, Saved& saved,
                            Tensor y, AttentionCache* cache) const {
  const Tensor x = projections_.gather_input(run, x_local, run.scratch);  // [rows, hidden]
  const DType dtype = x.dtype();
  Arena& arena = cache == nullptr ? run.activations : run.scratch;
  saved.raw = projections_.forward(run, x, arena);
  const int64_t heads = query_->box.extent[0];
  saved.attended = arena.allocate(dtype, {run.rows, heads, head_dim_});
  saved.log_sum_exp = arena.allocate(accumulation_type(dtype), {heads, run.attending_rows()});
  attend_by_document(run, saved.raw, saved.attended.merge_last(), [&](const Tensor& raw, const Tensor& attended) {
    attend(run, raw, rope, attended.split_last(heads, head_dim_), saved.log_sum_exp, cache);
  });
  return out_.forward_add(run, saved.attended.merge_last(), residual, y);
}

void Attention::attend(Run& run, const Tensor& raw, const Tensor& rope, const Tensor& attended,
                       const Tensor& log_sum_exp, AttentionCache* cache) const {
  ArenaScope scope(run.scratch);
  AttentionShape shape = attention_shape(run);
  Streams s;
  if (cache == nullptr) {
    s = shift(run, raw, rope, run.scratch.allocate(raw.dtype(), raw.shape()));
  } else {
    shape = {.sequence_length = raw.extent(0), .key_offset = cache->length};
    s = append(run, split(raw), rope, *cache);
  }
  Tensor scratch = run.scratch.allocate(accumulation_type(raw.dtype()), attention_scratch(run.stream, s.q, s.k, shape));
  attention_forward(run.stream, s.q, s.k, s.v, run.documents.attention_start, shape, attended, log_sum_exp, scratch);
}

Tensor Attention::backward(Run& run, const Tensor& d_y_local, const Tensor& x_local, const Tensor& rope,
                           const Saved& saved) const {
  const Tensor d_y = out_.gather_gradient(run, d_y_local, run.scratch);
  const DType dtype = d_y.dtype();
  const int64_t heads = query_->box.extent[0];
  const Tensor d_attended = out_.backward(run, d_y, saved.attended.merge_last(), run.scratch, Linear::KeptOperand::x)
                                .split_last(heads, head_dim_);
  const AttentionShape shape = attention_shape(run);
  // Holds query, key and value first, which the gradient of the raw ones then overwrites.
  const Tensor d_raw = run.scratch.allocate(dtype, saved.raw.shape());
  {
    ArenaScope scope(run.scratch);
    const Streams s = shift(run, saved.raw, rope, d_raw);
    const Streams raw = split(saved.raw), into = split(d_raw);
    Tensor d_q = run.scratch.allocate(dtype, s.q.shape());
    Tensor d_k = run.scratch.allocate(dtype, s.k.shape());
    Tensor d_v = value_shift_.is_identity() ? into.v : run.scratch.allocate(dtype, s.v.shape());
    {
      ArenaScope kernel_scope(run.scratch);
      Tensor scratch = run.scratch.allocate(accumulation_type(dtype), attention_scratch(run.stream, s.q, s.k, shape));
      attention_backward(run.stream, d_attended, s.q, s.k, s.v, saved.attended, saved.log_sum_exp,
                         run.documents.attention_start, shape, d_q, d_k, d_v, scratch);
    }
    std::vector<KvShift::Backward> streams = {{query_shift_, d_q, raw.q, into.q}, {key_shift_, d_k, raw.k, into.k}};
    if (!value_shift_.is_identity()) streams.push_back({value_shift_, d_v, raw.v, into.v});
    KvShift::backward(run, rope, streams);
  }
  const Tensor x = projections_.gather_input(run, x_local, run.scratch);
  return projections_.backward(run, d_raw, x, run.scratch);
}

AttentionCache Attention::make_cache(Arena& arena, DType dtype, int64_t capacity) const {
  const int64_t heads = query_->box.extent[0];
  const int64_t kv_heads = key_->box.extent[0];
  const auto carried = [&](const KvShift& shift, int64_t count) {
    return shift.previous() == 0 ? Tensor() : arena.allocate(dtype, {shift.previous(), count, head_dim_});
  };
  return {.keys = arena.allocate(dtype, {capacity, kv_heads, head_dim_}),
          .values = arena.allocate(dtype, {capacity, kv_heads, head_dim_}),
          .carried_query = carried(query_shift_, heads),
          .carried_key = carried(key_shift_, kv_heads),
          .carried_value = carried(value_shift_, kv_heads)};
}

Attention::Streams Attention::append(Run& run, const Streams& raw, const Tensor& rope, AttentionCache& cache) const {
  const int64_t rows = raw.q.extent(0);
  if (std::exchange(cache.shift_begins, false) || cache.length == 0) {
    for (const Tensor& carried : {cache.carried_query, cache.carried_key, cache.carried_value}) {
      if (carried.defined()) fill_zero(run.stream, carried);
    }
  }
  const Tensor q = run.scratch.allocate(raw.q.dtype(), raw.q.shape());
  const Tensor k = cache.keys.rows(cache.length, rows);
  const Tensor v = cache.values.rows(cache.length, rows);
  shift(run, raw, rope, {cache.carried_query, cache.carried_key, cache.carried_value}, {q, k, v});
  if (value_shift_.is_identity()) copy(run.stream, raw.v.merge_last(), v.merge_last());
  carry(run.stream, raw.q, cache.carried_query);
  carry(run.stream, raw.k, cache.carried_key);
  carry(run.stream, raw.v, cache.carried_value);
  cache.length += rows;
  return {q, cache.keys.rows(0, cache.length), cache.values.rows(0, cache.length)};
}

}  // namespace shiftron
