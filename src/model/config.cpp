// Derived defaults of the model's shape and its FLOP count.
#include "model/config.h"

namespace shiftron {

namespace {

// Elements of the matrices of one layer.
double matrix_elements(const ModelConfig& c) {
  const double attention = static_cast<double>(2 * c.heads + 2 * c.kv_heads) * static_cast<double>(c.head_dim);
  return static_cast<double>(c.hidden) * (attention + 3 * static_cast<double>(c.ffn));
}

}  // namespace

ModelConfig with_defaults(ModelConfig config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim == 0 && config.heads > 0 && config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  }
  return config;
}

double parameter_count(const ModelConfig& config) {
  const ModelConfig c = with_defaults(config);
  const double tables = (c.tie_embeddings ? 1.0 : 2.0) * static_cast<double>(c.vocab) * static_cast<double>(c.hidden);
  const double norms = (2 * static_cast<double>(c.layers) + 1) * static_cast<double>(c.hidden);
  double taps = 0;
  for (const int stream : {0, 1, 2}) {
    taps += static_cast<double>(heads_of(c, stream)) * taps_of_head(c.shift, previous_tokens(c.shift, stream));
  }
  return static_cast<double>(c.layers) * (matrix_elements(c) + taps) + tables + norms;
}

double model_flops(const ModelConfig& config, double tokens, double attended) {
  const ModelConfig c = with_defaults(config);
  const auto layers = static_cast<double>(c.layers);
  const double head = static_cast<double>(c.vocab) * static_cast<double>(c.hidden);
  return 6 * tokens * (layers * matrix_elements(c) + head) +
         12 * layers * static_cast<double>(c.heads) * static_cast<double>(c.head_dim) * attended;
}

double head_in_layers(ModelConfig config, int64_t sequence_length) {
  const double attended = static_cast<double>(sequence_length) / 2;  // pairs per token, about
  config.layers = 0;
  const double head = model_flops(config, 1, attended);
  config.layers = 1;
  return head / (model_flops(config, 1, attended) - head);
}

}  // namespace shiftron
