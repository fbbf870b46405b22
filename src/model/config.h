// The model's shape and its KV shift, as the user sets them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/enum_names.h"

namespace shiftron {

enum class ShiftForm { free, gate, clamp, project };
enum class ShiftInit { paper, identity };
enum class ShiftRemainder { oldest, current };
enum class ShiftReset { automatic, always, never };

constexpr std::array<const char*, 4> names_of(ShiftForm) {
  return {"free", "gate", "clamp", "project"};
}
constexpr std::array<const char*, 2> names_of(ShiftInit) {
  return {"paper", "identity"};
}
constexpr std::array<const char*, 2> names_of(ShiftRemainder) {
  return {"oldest", "current"};
}
constexpr std::array<const char*, 3> names_of(ShiftReset) {
  return {"auto", "always", "never"};
}

// Previous tokens mixed into each stream (0 to 3) and how.
struct ShiftConfig {
  int query = 0, key = 1, value = 1;
  ShiftForm form = ShiftForm::free;
  ShiftInit init = ShiftInit::paper;
  ShiftRemainder remainder = ShiftRemainder::oldest;
  ShiftReset reset = ShiftReset::automatic;

  bool operator==(const ShiftConfig&) const = default;
};

// Streams by number: 0 query, 1 key, 2 value.
constexpr int previous_tokens(const ShiftConfig& shift, int stream) {
  return stream == 0 ? shift.query : stream == 1 ? shift.key : shift.value;
}
constexpr int most_previous_tokens(const ShiftConfig& shift) {
  return std::max({shift.query, shift.key, shift.value});
}

// Learned scalars of a head whose stream mixes in `previous` tokens.
constexpr int taps_of_head(const ShiftConfig& shift, int previous) {
  if (previous == 0) return 0;
  return shift.form == ShiftForm::gate ? 1 : previous + 1;
}

// Sizes of the whole model; 0 = not set.
struct ModelConfig {
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kv_heads = 0;  // 0 = heads
  int64_t head_dim = 0;  // 0 = hidden / heads
  int64_t ffn = 0, vocab = 0;
  double rope_base = 100000, norm_epsilon = 1e-5;
  bool tie_embeddings = false;
  double init_std = 0.02;
  ShiftConfig shift{};

  bool operator==(const ModelConfig&) const = default;
};

constexpr int64_t heads_of(const ModelConfig& config, int stream) {  // previous_tokens() numbers streams
  return stream == 0 ? config.heads : config.kv_heads;
}

// `config` with kv_heads and head_dim filled in if they are 0 and follow from the rest.
ModelConfig with_defaults(ModelConfig config);

// Elements of all parameters; a double, because a user's values may exceed an integer.
double parameter_count(const ModelConfig& config);

// Floating-point operations of forward and backward over `tokens` tokens: 6 per token and matmul parameter (with the
// head, without the embedding table), and in each layer 12 · heads · head_dim per attended pair. `attended`: pairs of a
// token and a token that it attends to, itself included.
double model_flops(const ModelConfig& config, double tokens, double attended);
// The head's cost in model_flops(), as a number of layers.
double head_in_layers(ModelConfig config, int64_t sequence_length);

}  // namespace shiftron
