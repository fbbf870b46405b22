// Causal attention with KV shift: query, key, value → shift → RoPE → attention → out, added to the residual.
#pragma once

#include <array>

#include "model/kv_shift.h"
#include "parallel/tensor_parallel.h"

namespace shiftron {

// What a forward over the next rows needs of the earlier ones: rotated, shifted keys and shifted values, and the last raw
// rows of each stream.
struct AttentionCache {
  Tensor keys, values;                                 // [capacity, local KV heads, head_dim]
  Tensor carried_query, carried_key, carried_value;    // [previous, local heads, head_dim] each; undefined without shift
  int64_t length = 0;                                  // rows of keys and values that are filled
  bool shift_begins = false;                           // nothing carried is mixed into the next row
};

class Attention {
 public:
  // Backward recomputes query, key and value after shift and RoPE: two passes over memory save a seventh of the
  // activations.
  struct Saved {
    Tensor raw;            // [rows, local (heads + 2 KV heads) · head_dim]
    Tensor attended;       // [rows, local heads, head_dim]
    Tensor log_sum_exp;    // [local heads, attending rows] A
  };
  Attention(ParameterSet& set, const std::string& prefix, const ModelConfig& config, int layer);

  // x, residual, y [local rows, hidden], y in separate memory; rope: [2, positions, head_dim/2]. With a cache, the rows
  // follow those in it, run.documents must start at row 0, and nothing is kept for backward.
  Residual forward(Run& run, const Tensor& x, const Tensor& residual, const Tensor& rope, Saved& saved, Tensor y,
                   AttentionCache* cache = nullptr) const;
  // d_x without the residual's part, which is d_y. x: as in forward.
  Tensor backward(Run& run, const Tensor& d_y, const Tensor& x, const Tensor& rope, const Saved& saved) const;
  // Query, key and value.
  std::array<KvShift*, 3> shifts() { return {&query_shift_, &key_shift_, &value_shift_}; }
  AttentionCache make_cache(Arena& arena, DType dtype, int64_t capacity) const;
  struct Streams {
    Tensor q, k, v;  // [rows, local heads, head_dim], views of one product
  };
  // Query, key and value after shift and RoPE, as forward() attended with them, in run.scratch; documents must not
  // share rows.
  Streams attending(Run& run, const Tensor& rope, const Saved& saved) const;

 private:
  Streams split(const Tensor& raw) const;
  // Shift and attention over the attending rows; raw as in Saved, attended [attending rows, local heads, head_dim].
  void attend(Run& run, const Tensor& raw, const Tensor& rope, const Tensor& attended, const Tensor& log_sum_exp,
              AttentionCache* cache) const;
  // Appends the next rows. Returns their query, in run.scratch, and all keys and values.
  Streams append(Run& run, const Streams& raw, const Tensor& rope, AttentionCache& cache) const;
  // Shifted and rotated, in `memory` of the shape of `raw`; without shift, the value is the raw one.
  Streams shift(Run& run, const Tensor& raw, const Tensor& rope, const Tensor& memory) const;
  // Writes to `to`, except a value that nothing changes.
  void shift(Run& run, const Streams& raw, const Tensor& rope, const Streams& carried, const Streams& to) const;
  int64_t head_dim_;
  Parameter *query_, *key_, *value_;
  KvShift query_shift_, key_shift_, value_shift_;
  Parameter* out_weight_;
  Linear projections_, out_;
};

}  // namespace shiftron
