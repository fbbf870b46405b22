// Derived defaults of the model's shape and its FLOP count.
#include "model/config.h"

namespace shiftron {

ModelConfig with_defaults(ModelConfig config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim == 0 && config.heads > 0 && config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  }
  return config;
}

int64_t model_flops_per_token(const ModelConfig& config, int64_t sequence_length) {
  const ModelConfig c = with_defaults(config);
  const int64_t query_and_out = 2 * c.hidden * c.heads * c.head_dim;
  const int64_t key_and_value = 2 * c.hidden * c.kv_heads * c.head_dim;
  const int64_t gate_up_down = 3 * c.hidden * c.ffn;
  const int64_t head = c.vocab * c.hidden;
  const int64_t matmul_parameters = c.layers * (query_and_out + key_and_value + gate_up_down) + head;
  return 6 * matmul_parameters + 6 * c.layers * c.heads * c.head_dim * sequence_length;
}

double head_in_layers(ModelConfig config, int64_t sequence_length) {
  config.layers = 0;
  const int64_t head = model_flops_per_token(config, sequence_length);
  config.layers = 1;
  const int64_t layer = model_flops_per_token(config, sequence_length) - head;
  return static_cast<double>(head) / static_cast<double>(layer);
}

}  // namespace shiftron
