// Attention: forward, backward and decoding.
#include "model/attention.h"

#include <utility>

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
      projections_(set, {query_, key_, value_}, config.hidden),
      out_(set, {out_weight_}, out_weight_->box.extent[1] * config.head_dim) {}

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
                            Tensor y) const {
  const Tensor x = gather_rows(run, x_local, run.scratch);  // [rows, hidden]
  const DType dtype = x.dtype();
  saved.raw = projections_.forward(run, x, run.activations);
  const int64_t heads = query_->box.extent[0];
  saved.attended = run.activations.allocate(dtype, {run.rows, heads, head_dim_});
  const Documents& documents = run.documents;
  const int64_t rows = run.attending_rows();
  saved.log_sum_exp = run.activations.allocate(accumulation_type(dtype), {heads, rows});
  if (documents.copied_from.defined()) {
    CHECK(!run.training, "documents cannot share rows in a training step");
    ArenaScope scope(run.scratch);
    const Tensor raw = run.scratch.allocate(dtype, {rows, saved.raw.extent(1)});
    const Tensor attended = run.scratch.allocate(dtype, {rows, heads, head_dim_});
    embedding_forward(run.stream, documents.copied_from, saved.raw, 0, raw);
    attend(run, raw, rope, attended, saved.log_sum_exp);
    embedding_forward(run.stream, documents.kept_from, attended.merge_last(), 0, saved.attended.merge_last());
  } else {
    attend(run, saved.raw, rope, saved.attended, saved.log_sum_exp);
  }
  return out_.forward_add(run, saved.attended.merge_last(), residual, y);
}

void Attention::attend(Run& run, const Tensor& raw, const Tensor& rope, Tensor attended, Tensor log_sum_exp) const {
  const bool copied = run.documents.copied_from.defined();
  const AttentionShape shape{.sequence_length = copied ? run.attending_rows() : run.sequence_length,
                             .documents = run.documents.cut};
  ArenaScope scope(run.scratch);
  const Streams s = shift(run, raw, rope, run.scratch.allocate(raw.dtype(), raw.shape()));
  Tensor scratch = run.scratch.allocate(accumulation_type(raw.dtype()), attention_scratch(run.stream, s.q, s.k, shape));
  attention_forward(run.stream, s.q, s.k, s.v, run.documents.attention_start, shape, attended, log_sum_exp, scratch);
}

Tensor Attention::backward(Run& run, const Tensor& d_y_local, const Tensor& x_local, const Tensor& rope,
                           const Saved& saved) const {
  const Tensor d_y = gather_rows(run, d_y_local, run.scratch);
  const DType dtype = d_y.dtype();
  const int64_t heads = query_->box.extent[0];
  const Tensor d_attended = out_.backward(run, d_y, saved.attended.merge_last(), run.scratch, Linear::KeptOperand::x)
                                .split_last(heads, head_dim_);
  const AttentionShape shape{.sequence_length = run.sequence_length, .documents = run.documents.cut};
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
  const Tensor x = gather_rows(run, x_local, run.scratch);
  return reduce_rows(run, projections_.backward(run, d_raw, x, run.scratch), run.scratch);
}

AttentionState Attention::make_state(Arena& arena, DType dtype, int64_t capacity) const {
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

Residual Attention::decode(Run& run, const Tensor& x, const Tensor& residual, const Tensor& rope, AttentionState& state,
                           Tensor y) const {
  const Streams raw = split(projections_.forward(run, x, run.scratch));
  const int64_t rows = x.extent(0);
  if (std::exchange(state.shift_begins, false) || state.length == 0) {
    for (const Tensor& carried : {state.carried_query, state.carried_key, state.carried_value}) {
      if (carried.defined()) fill_zero(run.stream, carried);
    }
  }
  Tensor q = run.scratch.allocate(x.dtype(), raw.q.shape());
  const Tensor k = state.keys.rows(state.length, rows);
  const Tensor v = state.values.rows(state.length, rows);
  shift(run, raw, rope, {state.carried_query, state.carried_key, state.carried_value}, {q, k, v});
  if (value_shift_.is_identity()) copy(run.stream, raw.v.merge_last(), v.merge_last());
  carry(run.stream, raw.q, state.carried_query);
  carry(run.stream, raw.k, state.carried_key);
  carry(run.stream, raw.v, state.carried_value);
  const int64_t before = state.length;
  state.length += rows;
  Tensor attended = run.scratch.allocate(x.dtype(), q.shape());
  Tensor log_sum_exp = run.scratch.allocate(accumulation_type(x.dtype()), {q.extent(1), rows});
  const AttentionShape shape{.sequence_length = rows, .key_offset = before};
  Tensor scratch = run.scratch.allocate(accumulation_type(x.dtype()), attention_scratch(run.stream, q, k, shape));
  attention_forward(run.stream, q, state.keys.rows(0, state.length), state.values.rows(0, state.length),
                    run.documents.attention_start, shape, attended, log_sum_exp, scratch);
  return out_.forward_add(run, attended.merge_last(), residual, y);
}

}  // namespace shiftron
