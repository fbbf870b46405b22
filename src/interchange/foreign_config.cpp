// One table of keys of transformers, Megatron-LM and NeMo; each program's own sizes are read elsewhere.
#include "interchange/foreign_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "checkpoint/json_fields.h"
#include "core/check.h"
#include "core/file.h"
#include "core/json_outline.h"
#include "core/json_reason.h"

namespace shiftron {
namespace {

using Json = ForeignConfig;

struct Rule {
  std::vector<const char*> keys;
  std::vector<Json> neutral;  // in addition to null; also as a list, one for each layer
  const char* reason;
};

const std::vector<Rule>& rules() {
  static const char* const silu = "only the activation silu is supported, without additions or clamping";
  static const char* const gated = "only SwiGLU MLPs are supported";
  static const char* const every_token = "only attention to all previous tokens is supported";
  static const char* const by_rope = "only RoPE positions are supported";
  static const char* const softmax =
      "only softmax attention with products divided by the root of the head's size is supported";
  static const char* const no_factor = "factors for embeddings, residuals or logits are not supported";
  static const std::vector<Rule> list = {
      {{"attention_bias", "mlp_bias", "bias", "use_bias", "qkv_bias", "add_qkv_bias", "add_bias_linear"},
       {false},
       "biases are not supported"},
      {{"hidden_act", "hidden_activation", "activation_func"},
       {"silu", "swish", "F.silu", "torch.nn.functional.silu"},
       silu},
      {{"activation"}, {"silu", "swiglu", "fast-swiglu"}, silu},
      {{"squared_relu", "quick_geglu", "openai_gelu"}, {false}, silu},
      {{"glu_linear_offset"}, {0}, silu},
      {{"activation_func_clamp_value"}, {}, silu},
      {{"gated_linear_unit", "swiglu"}, {true}, gated},
      {{"rotary_percent", "rotary_percentage", "rotary_pct", "partial_rotary_factor"},
       {1},
       "RoPE must rotate whole heads"},
      {{"rotary_interleaved", "rope_interleaved", "rope_interleave"},
       {false},
       "RoPE must rotate halves, as Hugging Face's Llama does"},
      {{"rope_version"}, {"huggingface"}, "RoPE must rotate halves, as Hugging Face's Llama does"},
      {{"no_rope_freq"}, {0}, "RoPE must be applied in every layer"},
      {{"no_rope_layers"}, {1}, "RoPE must be applied in every layer"},
      {{"no_rope_layer_interval"}, {}, "RoPE must be applied in every layer"},
      {{"position_embedding_type"}, {"rope", "rotary"}, by_rope},
      {{"alibi", "use_alibi"}, {false}, by_rope},
      {{"use_rope_scaling"}, {false}, kUnscaled},
      {{"rotary_seq_len_interpolation_factor", "seq_len_interpolation_factor", "scale_factor"}, {1}, kUnscaled},
      {{"normalization"}, {"RMSNorm", "rmsnorm"}, "only RMSNorm is supported"},
      {{"layernorm_zero_centered_gamma", "apply_layernorm_1p", "rms_norm_add_unit_offset"},
       {false},
       "norms must multiply by the weight itself, not by 1 + weight"},
      {{"qk_layernorm", "qk_norm", "use_qk_norm", "qk_l2_norm"},
       {false},
       "norms of queries and keys are not supported"},
      {{"parallel_residual", "use_parallel_residual", "apply_residual_connection_post_layernorm"},
       {false},
       "the MLP must follow the attention, each after its own norm"},
      {{"transformer_block_type"}, {"pre_ln"}, "only layers with a norm before each part are supported"},
      {{"enable_mhc_connections", "enable_hyper_connections"},
       {false},
       "only one residual stream between layers is supported"},
      {{"window_size"}, {Json({-1, -1}), Json({-1, 0})}, every_token},
      {{"layer_types"}, {"full_attention"}, every_token},
      {{"attention_chunk_size"}, {}, every_token},
      {{"is_causal"}, {true}, every_token},
      {{"use_bidirectional_attention"}, {false}, every_token},
      {{"softmax_scale", "attention_multiplier", "query_pre_attn_scalar", "clip_qkv"}, {}, softmax},
      {{"normalize_attention_scores"}, {true}, softmax},
      {{"softmax_type"}, {"vanilla"}, softmax},
      {{"attn_logit_softcapping", "final_logit_softcapping"}, {}, "soft caps of products or logits are not supported"},
      {{"attention_output_gate"}, {false}, "a gate in the attention is not supported"},
      {{"multi_latent_attention"}, {false}, "only attention with separate key and value matrices is supported"},
      {{"embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "scale_emb",
        "mup_embedding_mult", "mup_output_mult"},
       {1},
       no_factor},
      {{"scale_depth", "dim_model_base"}, {}, no_factor},
      {{"use_mup"}, {false}, no_factor},
      {{"num_moe_experts", "num_experts"}, {}, "experts are not supported"},
      {{"quantization_config"}, {}, "quantised weights are not supported: convert them to F32 or BF16"}};
  return list;
}

bool is_neutral(const Json& value, const std::vector<Json>& neutral) {
  const auto is_one = [&](const Json& one) { return std::ranges::find(neutral, one) != neutral.end(); };
  return is_one(value) || (value.is_array() && !value.empty() && std::ranges::all_of(value, is_one));
}

}  // namespace

Json parse_foreign_config(const std::string& text, const std::string& source) {
  refuse_deep_json(text, kDeepestJson, [&] {  // messages show values recursively
    throw_bad_input(source, ": nested deeper than ", kDeepestJson);
  });
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input(source, ": not valid JSON: ", json_reason(error));
  }
  throw_bad_input(source, ": it is not a JSON object");
}

Json read_foreign_config(const std::string& path, uint64_t limit) {
  return parse_foreign_config(read_file(path, limit), path);
}

bool has_key(const Json& config, const char* key) {
  return config.contains(key) && !config[key].is_null();
}

void refuse_key(const Json& config, const std::string& source, const char* key, const std::string& reason) {
  std::string value =
      config.contains(key) ? config[key].dump(-1, ' ', true, Json::error_handler_t::replace) : "missing";
  if (value.size() > 80) value = value.substr(0, 77) + "...";
  throw_bad_input(source, ": ", key, " is ", value, ": ", reason);
}

void refuse_other_models(const Json& config, const std::string& source) {
  for (const Rule& rule : rules()) {
    for (const std::string_view key : rule.keys) {
      // The list no_rope_layers replaces it.
      if (key == "no_rope_layer_interval" && has_key(config, "no_rope_layers")) continue;
      if (has_key(config, key.data()) && !is_neutral(config[key], rule.neutral)) {
        refuse_key(config, source, key.data(), rule.reason);
      }
    }
  }
}

}  // namespace shiftron
