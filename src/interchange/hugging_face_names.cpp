// Translates names by how ours end; the model itself declares which parameters exist.
#include "interchange/hugging_face_names.h"

#include "core/check.h"
#include "model/transformer.h"

namespace shiftron {
namespace {

struct Ending {
  const char *ours, *theirs;
};
constexpr Ending kEndings[] = {
    {"attention_norm.weight", "input_layernorm.weight"}, {"attention.query.weight", "self_attn.q_proj.weight"},
    {"attention.key.weight", "self_attn.k_proj.weight"}, {"attention.value.weight", "self_attn.v_proj.weight"},
    {"attention.out.weight", "self_attn.o_proj.weight"}, {"mlp_norm.weight", "post_attention_layernorm.weight"},
    {"mlp.gate.weight", "mlp.gate_proj.weight"},         {"mlp.up.weight", "mlp.up_proj.weight"},
    {"mlp.down.weight", "mlp.down_proj.weight"},         {"embedding.weight", "model.embed_tokens.weight"},
    {"final_norm.weight", "model.norm.weight"},          {"head.weight", "lm_head.weight"}};
constexpr const char* kTaps[] = {"attention.shift_query", "attention.shift_key", "attention.shift_value"};

std::string their_name(const std::string& prefix, const std::string& ending) {
  for (const Ending& known : kEndings) {
    if (ending == known.ours) return (prefix.empty() ? "" : "model." + prefix) + known.theirs;
  }
  CHECK(false, "no Hugging Face name for ", prefix, ending);
}

std::string layer_prefix(int64_t layer) {
  return "layers." + std::to_string(layer) + ".";
}

}  // namespace

std::string name_of_taps(int64_t layer, int stream) {
  return layer_prefix(layer) + kTaps[stream];
}

std::vector<HuggingFaceName> hugging_face_names(const ModelConfig& model) {
  ParameterSet set({}, {}, {DType::float32, DType::float32});
  const TransformerStage stage(set, model, {.layers = {0, model.layers}}, RecomputeKind::none);
  std::vector<HuggingFaceName> names;
  for (const auto& parameter : set.parameters()) {
    const ParameterSpec& spec = parameter->spec;
    HuggingFaceName name{
        .ours = spec.name, .theirs = {}, .shape = spec.shape, .foreign_shape = {}, .layer = spec.layer};
    const std::string prefix = spec.layer < 0 ? "" : layer_prefix(spec.layer);
    const std::string ending = spec.name.substr(prefix.size());
    for (int stream = 0; stream < 3; ++stream) {
      if (ending == kTaps[stream]) name.stream = stream;
    }
    if (name.stream < 0) name.theirs = their_name(prefix, ending);
    const auto extent = [&](int dim) { return static_cast<uint64_t>(spec.shape[dim]); };
    if (spec.shape.dims() < 3) {
      for (int dim = 0; dim < spec.shape.dims(); ++dim) name.foreign_shape.push_back(extent(dim));
    } else if (ending == "attention.out.weight") {  // [hidden, heads, head_dim]
      name.foreign_shape = {extent(0), extent(1) * extent(2)};
    } else {  // [heads, head_dim, hidden]
      name.foreign_shape = {extent(0) * extent(1), extent(2)};
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace shiftron
