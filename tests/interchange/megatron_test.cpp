// Megatron-LM's tensors with every form of names, and what is refused.
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "interchange/hugging_face_testing.h"
#include "interchange/megatron_source.h"

namespace shiftron::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Stored {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Stored>;

struct Names {
  const char* name;
  bool prefix = false, stacked = false, unfused = false, halves = false, tied = false;
  int64_t kv_heads = 2;
};
void PrintTo(const Names& item, std::ostream* out) {
  *out << item.name;
}

constexpr uint64_t kPadded = 32;  // rows of the vocabulary

// What Megatron-LM would hold of the model: its orders of rows, written out element by element.
Tensors megatron_tensors(MemorySource& source, const ModelConfig& model, const Names& names) {
  Tensors tensors;
  const auto hidden = static_cast<uint64_t>(model.hidden), ffn = static_cast<uint64_t>(model.ffn),
             head = static_cast<uint64_t>(model.head_dim) * hidden, width = static_cast<uint64_t>(model.heads * 6);
  const auto padded = [&](const std::string& ours) {
    std::vector<float> values = source.values(ours);
    values.resize(kPadded * hidden, 777);
    return Stored{{kPadded, hidden}, values};
  };
  tensors["embedding.word_embeddings.weight"] = padded("embedding.weight");
  if (!model.tie_embeddings) tensors["output_layer.weight"] = padded("head.weight");
  tensors["decoder.final_layernorm.weight"] = {{hidden}, source.values("final_norm.weight")};
  std::map<std::string, std::vector<Stored>> layers;  // by the name after the number
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const auto ours = [&](const std::string& name) -> std::vector<float>& {
      return source.values("layers." + std::to_string(layer) + "." + name + ".weight");
    };
    const auto join = [](std::vector<float> a, const std::vector<float>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    std::vector<float> qkv;
    const int64_t group = model.heads / model.kv_heads;
    const auto push = [&](const std::vector<float>& values, int64_t at) {
      const auto begin = values.begin() + at * static_cast<int64_t>(head);
      qkv.insert(qkv.end(), begin, begin + static_cast<int64_t>(head));
    };
    for (int64_t kv = 0; kv < model.kv_heads; ++kv) {
      for (int64_t i = 0; i < group; ++i) push(ours("attention.query"), kv * group + i);
      push(ours("attention.key"), kv);
      push(ours("attention.value"), kv);
    }
    layers["self_attention.linear_qkv.weight"].push_back({{qkv.size() / hidden, hidden}, qkv});
    layers["self_attention.linear_proj.weight"].push_back({{hidden, width}, ours("attention.out")});
    if (names.halves) {
      layers["mlp.linear_fc1.weight_w"].push_back({{ffn, hidden}, ours("mlp.gate")});
      layers["mlp.linear_fc1.weight_v"].push_back({{ffn, hidden}, ours("mlp.up")});
    } else {
      layers["mlp.linear_fc1.weight"].push_back({{2 * ffn, hidden}, join(ours("mlp.gate"), ours("mlp.up"))});
    }
    layers["mlp.linear_fc2.weight"].push_back({{hidden, ffn}, ours("mlp.down")});
    layers[names.unfused ? "input_layernorm.weight" : "self_attention.linear_qkv.layer_norm_weight"].push_back(
        {{hidden}, ours("attention_norm")});
    layers[names.unfused ? "pre_mlp_layernorm.weight" : "mlp.linear_fc1.layer_norm_weight"].push_back(
        {{hidden}, ours("mlp_norm")});
  }
  for (const auto& [name, parts] : layers) {
    if (!names.stacked) {
      for (size_t i = 0; i < parts.size(); ++i) tensors["decoder.layers." + std::to_string(i) + "." + name] = parts[i];
      continue;
    }
    Stored& all = tensors["decoder.layers." + name];
    all.shape = parts[0].shape;
    all.shape.insert(all.shape.begin(), parts.size());
    for (const Stored& part : parts) all.values.insert(all.values.end(), part.values.begin(), part.values.end());
  }
  tensors["decoder.layers.0.mlp.linear_fc1._extra_state"] = {{1}, {0}};
  if (!names.prefix) return tensors;
  Tensors renamed;
  for (const auto& [name, tensor] : tensors) renamed["model." + name] = tensor;
  return renamed;
}

void write_tensors(const std::string& directory, const Tensors& tensors, const json& config) {
  fs::remove_all(directory);
  fs::create_directories(directory);
  std::vector<SafetensorsTensor> described;
  for (const auto& [name, tensor] : tensors) {
    described.push_back({.name = name, .type = SafetensorsType::F32, .shape = tensor.shape});
  }
  SafetensorsWriter writer(directory + "/model.safetensors", described, {});
  for (const auto& [name, tensor] : tensors) writer.append(tensor.values.data(), tensor.values.size() * sizeof(float));
  writer.finish();
  write_text(directory + "/config.json", config.dump());
}

const json& least_config() {
  static const json config = {{"heads", 4}, {"vocab", 19}, {"rope_base", 12345}, {"norm_epsilon", 1e-3}};
  return config;
}

std::vector<float> part_of(TensorSource& source, const std::string& name, const Box& box) {
  std::vector<float> values(static_cast<size_t>(box.extent.count()));
  source.read(source.find(TensorGroup::parameters, name), box, values.data());
  return values;
}

class MegatronNames : public ::testing::TestWithParam<Names> {};

TEST_P(MegatronNames, AreReadBitByBit) {
  TemporaryDirectory directory;
  const std::string in = directory.path() + "/in";
  ModelConfig model = small_model({.query = 0, .key = 0, .value = 0}, GetParam().kv_heads, GetParam().tied);
  MemorySource source(model);
  write_tensors(in, megatron_tensors(source, model, GetParam()), least_config());
  MegatronSource read(in);
  model.init_std = read.model().init_std;  // which no tensor says
  EXPECT_EQ(read.model(), model);
  ASSERT_EQ(read.tensors().size(), source.tensors().size());
  for (const ManifestTensor& tensor : source.tensors()) {
    ASSERT_GE(read.find(TensorGroup::parameters, tensor.name), 0) << tensor.name;
    EXPECT_EQ(part_of(read, tensor.name, whole_box(tensor.shape)), source.values(tensor.name)) << tensor.name;
    Box box = whole_box(tensor.shape);  // a part in every dim
    for (int dim = 0; dim < tensor.shape.dims(); ++dim) {
      box.offset[dim] = 1;
      box.extent[dim] = std::max<int64_t>(1, tensor.shape[dim] - 1);
      if (tensor.shape[dim] == 1) box.offset[dim] = 0;
    }
    EXPECT_EQ(part_of(read, tensor.name, box), part_of(source, tensor.name, box)) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MegatronNames,
    ::testing::Values(
        Names{"fused"}, Names{.name = "prefix", .prefix = true}, Names{.name = "stacked", .stacked = true},
        Names{.name = "unfused", .unfused = true}, Names{.name = "halves", .halves = true},
        Names{.name = "stacked_halves", .stacked = true, .halves = true}, Names{.name = "tied", .tied = true},
        Names{.name = "every_head", .kv_heads = 4}, Names{.name = "one_kv_head", .kv_heads = 1},
        Names{.name = "all_of_it", .prefix = true, .stacked = true, .unfused = true, .tied = true, .kv_heads = 1}),
    [](const auto& item) { return std::string(item.param.name); });

class MegatronImports : public ::testing::Test {
 protected:
  std::string fault(const Tensors& tensors, const json& config) {
    write_tensors(in_, tensors, config);
    const Error error = error_of([&] { MegatronSource read(in_); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  ModelConfig model_ = small_model({.query = 0, .key = 0, .value = 0});
  MemorySource source_{model_};
  Tensors tensors_ = megatron_tensors(source_, model_, {"fused"});
  TemporaryDirectory directory_;
  const std::string in_ = directory_.path() + "/in";
};

TEST_F(MegatronImports, EveryProgramsKeysAreTaken) {
  const json llama = {{"num_hidden_layers", 2},
                      {"hidden_size", 10},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"head_dim", 6},
                      {"intermediate_size", 14},
                      {"vocab_size", 19},
                      {"rope_theta", 12345},
                      {"rms_norm_eps", 1e-3},
                      {"tie_word_embeddings", false},
                      {"model_type", "llama"},
                      {"max_position_embeddings", 48}};
  const json theirs = {
      {"num_layers", 2},      {"num_query_groups", 2},      {"kv_channels", 6},    {"ffn_hidden_size", 14},
      {"rotary_base", 12345}, {"layernorm_epsilon", 1e-3},  {"vocab_size", 19},    {"normalization", "RMSNorm"},
      {"swiglu", true},       {"num_moe_experts", nullptr}, {"rotary_percent", 1}, {"seq_length", 48}};
  const json ours = {
      {"layers", 2}, {"hidden", 10}, {"heads", 4},         {"kv_heads", 2},        {"head_dim", 6},
      {"ffn", 14},   {"vocab", 19},  {"rope_base", 12345}, {"norm_epsilon", 1e-3}, {"sequence_length", 48}};
  for (const json& config : {llama, theirs, ours}) {
    write_tensors(in_, tensors_, config);
    const MegatronSource read(in_);
    EXPECT_EQ(read.config().positions, 48);
    ModelConfig model = read.model();
    model.init_std = model_.init_std;
    EXPECT_EQ(model, model_);
  }
}

// As arguments of a model like ours have them.
TEST_F(MegatronImports, ArgumentsThatChangeNothingAreTaken) {
  const json config = {{"num_attention_heads", 4},
                       {"rotary_base", 12345},
                       {"layernorm_epsilon", 1e-3},
                       {"vocab_size", 19},
                       {"num_experts", nullptr},
                       {"rotary_seq_len_interpolation_factor", nullptr},
                       {"window_size", nullptr},
                       {"squared_relu", false},
                       {"activation_func", "silu"},
                       {"activation_func_clamp_value", nullptr},
                       {"activation", "fast-swiglu"},
                       {"openai_gelu", false},
                       {"normalization", "rmsnorm"},
                       {"rotary_percentage", 1.0},
                       {"transformer_block_type", "pre_ln"},
                       {"normalize_attention_scores", true},
                       {"glu_linear_offset", 0.0},
                       {"softmax_scale", nullptr},
                       {"softmax_type", "vanilla"},
                       {"attention_output_gate", false},
                       {"rope_scaling", false},
                       {"rope_scaling_factor", 8.0},
                       {"seq_len_interpolation_factor", nullptr},
                       {"scale_factor", 1},
                       {"no_rope_freq", {0, 0}},
                       {"qk_l2_norm", false},
                       {"use_mup", false},
                       {"mup_embedding_mult", 1.0},
                       {"mup_output_mult", 1.0},
                       {"mup_attn_scale_power", 1.0},
                       {"enable_hyper_connections", false},
                       {"apply_residual_connection_post_layernorm", false},
                       {"untie_embeddings_and_output_weights", true},
                       {"group_query_attention", true},
                       {"num_query_groups", 2},
                       {"seq_length", 48},
                       {"max_position_embeddings", 4096}};
  write_tensors(in_, tensors_, config);
  const MegatronSource read(in_);
  EXPECT_EQ(read.config().positions, 48);
  EXPECT_EQ(read.model().kv_heads, 2);
}

TEST_F(MegatronImports, TyingIsThatOfTheArguments) {
  json config = least_config();
  config["untie_embeddings_and_output_weights"] = false;
  EXPECT_THAT(fault(tensors_, config), HasSubstr("the files hold output_layer.weight"));
  config["tie_embeddings"] = false;
  EXPECT_THAT(fault(tensors_, config), HasSubstr("contradict each other"));
  config.erase("tie_embeddings");
  Tensors tied = tensors_;
  tied.erase("output_layer.weight");
  write_tensors(in_, tied, config);
  EXPECT_TRUE(MegatronSource(in_).model().tie_embeddings);
  config["untie_embeddings_and_output_weights"] = true;
  EXPECT_THAT(fault(tied, config), HasSubstr("tensor output_layer.weight [19, 10] is missing"));
}

TEST_F(MegatronImports, WithoutGroupedQueriesEveryHeadHasKeys) {
  json config = least_config();
  config.update({{"group_query_attention", false}, {"num_query_groups", 1}});
  EXPECT_THAT(fault(tensors_, config), HasSubstr("num_key_value_heads 4"));  // the tensors have groups
  json grouped = least_config();
  grouped["group_query_attention"] = true;
  write_tensors(in_, tensors_, grouped);
  EXPECT_EQ(MegatronSource(in_).model().kv_heads, 2);
  const ModelConfig model = small_model(model_.shift, 4);
  MemorySource source(model);
  write_tensors(in_, megatron_tensors(source, model, {.name = "every_head", .kv_heads = 4}), config);
  EXPECT_EQ(MegatronSource(in_).model().kv_heads, 4);
}

TEST_F(MegatronImports, AVocabularyThatIsNotStatedIsThePaddedOne) {
  json config = least_config();
  config.erase("vocab");
  write_tensors(in_, tensors_, config);
  EXPECT_EQ(MegatronSource(in_).model().vocab, static_cast<int64_t>(kPadded));
}

TEST_F(MegatronImports, AShiftThatIsAskedForBeginsAsTheIdentity) {
  write_tensors(in_, tensors_, least_config());
  MegatronSource read(in_, {std::nullopt, 2, 1});
  EXPECT_EQ(read.model().shift, (ShiftConfig{.query = 0, .key = 2, .value = 1}));
  const Shape shape =
      read.tensors()[static_cast<size_t>(read.find(TensorGroup::parameters, "layers.1.attention.shift_key"))].shape;
  EXPECT_EQ(part_of(read, "layers.1.attention.shift_key", whole_box(shape)), (std::vector<float>{0, 0, 1, 0, 0, 1}));
}

TEST_F(MegatronImports, ConfigurationsOfOtherModelsAreRefusedByName) {
  const auto with = [&](const char* key, const json& value) {
    json config = least_config();
    config[key] = value;
    return fault(tensors_, config);
  };
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"rotary_interleaved", true},
                                                 {"rotary_percent", 0.5},
                                                 {"rotary_percentage", 0.5},
                                                 {"normalization", "LayerNorm"},
                                                 {"normalization", "layernorm1p"},
                                                 {"activation", "geglu"},
                                                 {"activation", "fast-reglu"},
                                                 {"openai_gelu", true},
                                                 {"transformer_block_type", "post_ln"},
                                                 {"normalize_attention_scores", false},
                                                 {"layernorm_zero_centered_gamma", true},
                                                 {"apply_layernorm_1p", true},
                                                 {"gated_linear_unit", false},
                                                 {"swiglu", false},
                                                 {"add_bias_linear", true},
                                                 {"add_qkv_bias", true},
                                                 {"qk_layernorm", true},
                                                 {"num_moe_experts", 8},
                                                 {"num_experts", 8},
                                                 {"no_rope_freq", 4},
                                                 {"rotary_seq_len_interpolation_factor", 4},
                                                 {"window_size", {128, 0}},
                                                 {"squared_relu", true},
                                                 {"quick_geglu", true},
                                                 {"activation_func", "gelu"},
                                                 {"activation_func_clamp_value", 7.0},
                                                 {"glu_linear_offset", 1.0},
                                                 {"softmax_scale", 0.5},
                                                 {"softmax_type", "off-by-one"},
                                                 {"attention_output_gate", true},
                                                 {"untie_embeddings_and_output_weights", "no"},
                                                 {"multi_latent_attention", true},
                                                 {"qk_l2_norm", true},
                                                 {"use_mup", true},
                                                 {"mup_embedding_mult", 10.0},
                                                 {"mup_output_mult", 0.5},
                                                 {"seq_len_interpolation_factor", 4.0},
                                                 {"scale_factor", 8},
                                                 {"no_rope_freq", {0, 1}},
                                                 {"enable_mhc_connections", true},
                                                 {"enable_hyper_connections", true},
                                                 {"apply_residual_connection_post_layernorm", true},
                                                 {"attn_logit_softcapping", 50.0},
                                                 {"final_logit_softcapping", 30.0},
                                                 {"embedding_multiplier", 12.0},
                                                 {"rope_scaling", true},
                                                 {"position_embedding_type", "learned_absolute"},
                                                 {"use_rope_scaling", true},
                                                 {"rope_scaling", {{"rope_type", "llama3"}}},
                                                 {"model_type", "mixtral"}}) {
    EXPECT_THAT(with(key, value), HasSubstr(std::string("config.json: ") + key)) << key;
  }
  EXPECT_THAT(with("model_type", "baichuan_m1"), HasSubstr("must be llama"));
  EXPECT_THAT(with("rotary_base", 10000), HasSubstr("rope_base and rotary_base are the same setting, but differ"));
  EXPECT_THAT(with("num_layers", 3), HasSubstr("num_hidden_layers is 3, but the files hold 2 layers"));
  EXPECT_THAT(with("tie_embeddings", true), HasSubstr("the files hold output_layer.weight"));
  EXPECT_THAT(with("ffn", 12), HasSubstr("mlp.linear_fc1.weight is [28, 10], but config.json requires [24, 10]"));
  EXPECT_THAT(with("vocab", 33),
              HasSubstr("embedding.word_embeddings.weight is [32, 10], but config.json requires [33, 10]"));
  EXPECT_THAT(with("heads", 3),
              HasSubstr("num_attention_heads 3, num_key_value_heads 1 and head_dim 8 imply 40 rows of "
                        "self_attention.linear_qkv.weight, but the files hold 48"));
}

TEST_F(MegatronImports, AConfigurationOfAnyDepthIsRefused) {
  write_tensors(in_, tensors_, least_config());
  const size_t deep = 400'000;  // comparing or showing such a value takes more than a stack
  write_text(in_ + "/config.json", "{\"softmax_scale\":" + std::string(deep, '[') + std::string(deep, ']') + "}");
  EXPECT_THAT(error_of([&] { MegatronSource read(in_); }).what(), HasSubstr("config.json: nested deeper than 32"));
}

// Before something is made for each layer.
TEST_F(MegatronImports, LayersBeyondTheFilesAreRefusedFirst) {
  const Tensors stacked = megatron_tensors(source_, model_, {.name = "stacked", .stacked = true});
  for (const auto& [name, tensor] : stacked) {
    if (!name.starts_with("decoder.layers.") || name.ends_with("linear_proj.weight") || tensor.shape[0] != 2) continue;
    Tensors changed = stacked;
    changed[name].shape[0] = 1;
    changed[name].values.resize(tensor.values.size() / 2);
    EXPECT_THAT(fault(changed, least_config()),
                AllOf(HasSubstr("tensor " + name + " is [1, "), HasSubstr("linear_proj.weight holds 2 layers")));
  }
  Tensors many = tensors_;
  std::erase_if(many, [](const auto& one) { return one.first.starts_with("decoder.layers."); });
  many["decoder.layers.self_attention.linear_proj.weight"] = {{10'001, 1, 1}, std::vector<float>(10'001)};
  EXPECT_THAT(fault(many, least_config()), HasSubstr("the files hold 10001 layers, but at most 10000 are supported"));
}

TEST_F(MegatronImports, WhatNoTensorSaysMustBeStated) {
  for (const auto& [key, theirs] : {std::pair{"rope_base", "rope_theta (or rope_base, rotary_base) is missing"},
                                    std::pair{"norm_epsilon", "rms_norm_eps (or norm_epsilon, layernorm_epsilon)"},
                                    std::pair{"heads", "num_attention_heads (or heads) is missing"}}) {
    json config = least_config();
    config.erase(key);
    EXPECT_THAT(fault(tensors_, config), HasSubstr(theirs));
  }
  json config = least_config();
  config.erase("heads");
  config["head_dim"] = 6;
  write_tensors(in_, tensors_, config);
  EXPECT_EQ(MegatronSource(in_).model().heads, 4);
}

TEST_F(MegatronImports, TensorsThatDoNotFitAreRefusedByName) {
  for (const auto& [name, tensor] : tensors_) {
    if (name.ends_with("_extra_state") || name == "output_layer.weight") continue;
    Tensors changed = tensors_;
    changed.erase(name);
    EXPECT_THAT(fault(changed, least_config()), HasSubstr(name)) << name;
    changed[name] = {{1, 1, 1, 1}, {0}};
    EXPECT_THAT(fault(changed, least_config()), HasSubstr(name)) << name;
  }
  for (const char* more :
       {"decoder.layers.0.self_attention.linear_qkv.bias", "decoder.layers.1.self_attention.q_layernorm.weight",
        "embedding.position_embeddings.weight"}) {
    Tensors changed = tensors_;
    changed[more] = {{1}, {0}};
    EXPECT_THAT(fault(changed, least_config()), HasSubstr(std::string("these tensors are not supported:\n  ") + more));
  }
  Tensors gap = tensors_;
  gap["decoder.layers.7.mlp.linear_fc2.weight"] = {{10, 14}, std::vector<float>(140)};
  EXPECT_THAT(fault(gap, least_config()), HasSubstr("tensor decoder.layers.2."));
  Tensors twice = tensors_;
  twice["decoder.layers.1.input_layernorm.weight"] = {{10}, std::vector<float>(10)};
  EXPECT_THAT(fault(twice, least_config()), HasSubstr("are the same parameter; keep one"));
}

// Pickles are never read, whatever they hold.
TEST_F(MegatronImports, DirectoriesOfPicklesAreRefusedWithTheWayOut) {
  for (const char* file : {".metadata", "__0_0.distcp", "common.pt", "mp_rank_00"}) {
    const std::string directory = directory_.path() + "/" + std::string(file) + "-directory";
    fs::create_directories(directory);
    write_text(directory + "/" + file, "\x80\x02.");
    const Error error = error_of([&] { MegatronSource read(directory); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file), HasSubstr("never read"), HasSubstr("docs/interchange.md")));
  }
  EXPECT_THAT(error_of([&] { MegatronSource read(directory_.path() + "/none"); }).what(),
              HasSubstr("is not a directory"));
}

}  // namespace
}  // namespace shiftron::testing
