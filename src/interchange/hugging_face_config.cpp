// Keys of config.json; defaults are those of transformers' LlamaConfig.
#include "interchange/hugging_face_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/check.h"
#include "core/file.h"
#include "interchange/embedded_files.h"

namespace shiftron {
namespace {

using Json = ForeignConfig;
constexpr int64_t kMostPrevious = 3;
constexpr uint64_t kLongestGenerationConfig = 16'000'000;  // bytes: suppress_tokens may name many, a line each

struct ModelType {
  const char* name;
  const char* architecture;
  HuggingFaceForm form;
};
constexpr ModelType kModelTypes[] = {{"llama", "LlamaForCausalLM", HuggingFaceForm::llama},
                                     {"kv_shift_llama", "KVShiftLlamaForCausalLM", HuggingFaceForm::kv_shift},
                                     {"LlamaCanon", "LlamaCanonForCausalLM", HuggingFaceForm::canon},
                                     {"baichuan_m1", "BaichuanM1ForCausalLM", HuggingFaceForm::baichuan_m1}};

const ModelType& type_of(HuggingFaceForm form) {
  return *std::ranges::find_if(kModelTypes, [&](const ModelType& type) { return type.form == form; });
}

// Keys of one object; null counts as absent.
class Keys {
 public:
  Keys(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  bool has(const char* key) const { return has_key(json_, key); }
  const Json& at(const char* key) const { return json_[key]; }
  const std::string& source() const { return source_; }
  [[noreturn]] void refuse(const char* key, const std::string& reason) const {
    refuse_key(json_, source_, key, reason);
  }
  int64_t whole(const char* key, std::optional<int64_t> otherwise, int64_t least = 1,
                int64_t most = kLargestHuggingFaceSize) const {
    if (!has(key) && otherwise) return *otherwise;
    const bool fits =
        has(key) && at(key).is_number_unsigned() && at(key).get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!fits || at(key).get<int64_t>() < least) {
      refuse(key, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return at(key).get<int64_t>();
  }
  double positive(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    const double value = at(key).is_number() ? at(key).get<double>() : 0;
    if (!(value > 0) || !std::isfinite(value)) refuse(key, "must be a number above 0");
    return value;
  }
  bool flag(const char* key) const {
    if (!has(key)) return false;
    if (!at(key).is_boolean()) refuse(key, "must be true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_string()) refuse(key, "must be a string");
    return at(key).get<std::string>();
  }

 private:
  const Json& json_;
  std::string source_;
};

// The tokens in a number or a list of numbers. Numbers that are no tokens, such as -1 for none, are left out with a
// note.
std::vector<int64_t> tokens_of(const Keys& keys, const char* key, HuggingFaceConfig& config) {
  const auto vocab = static_cast<uint64_t>(config.model.vocab);
  const Json given = keys.at(key), listed = given.is_array() ? given : Json::array({given});
  std::vector<int64_t> tokens;
  for (const Json& token : listed) {
    if (!token.is_number_integer()) keys.refuse(key, "must be a token number or a list of token numbers");
    if (token.is_number_unsigned() && token.get<uint64_t>() < vocab)
      tokens.push_back(token.get<int64_t>());
    else
      config.notes.push_back(keys.source() + ": " + key + " " + token.dump() + " is ignored: tokens are 0 to " +
                             std::to_string(vocab - 1));
  }
  return tokens;
}

void read_tokens(const Keys& keys, HuggingFaceConfig& config) {
  constexpr char kBegin[] = "bos_token_id", kEnd[] = "eos_token_id";
  if (keys.has(kBegin)) {
    const std::vector<int64_t> tokens = tokens_of(keys, kBegin, config);
    config.begin_token = tokens.empty() ? std::nullopt : std::optional(tokens.front());
  }
  if (keys.has(kEnd)) config.end_tokens = tokens_of(keys, kEnd, config);
}

// One token as a number, several as a list, none as null.
Json end_json(const std::vector<int64_t>& tokens) {
  if (tokens.empty()) return {};
  return tokens.size() == 1 ? Json(tokens.front()) : Json(tokens);
}

// Refuses keys whose effect depends on other keys.
void refuse_by_other_keys(const Keys& keys, int64_t head_dim) {
  const bool no_layer_slides = keys.has("sliding_window_layers") && keys.at("sliding_window_layers").empty();
  if (keys.has("sliding_window") && !no_layer_slides &&
      (!keys.has("use_sliding_window") || keys.flag("use_sliding_window"))) {
    keys.refuse("sliding_window", "only attention to all previous tokens is supported");
  }
  if (keys.has("rope_dim") && keys.whole("rope_dim", {}) != head_dim) {
    keys.refuse("rope_dim", "RoPE must rotate whole heads, of " + std::to_string(head_dim));
  }
}

// RoPE's base, from rope_theta or, as transformers 5 writes it, from rope_parameters.
double rope_base(const Keys& keys, const std::string& source, double otherwise) {
  constexpr const char* kNames[] = {"rope_scaling", "rope_parameters"};
  const auto stands = [&](const char* name) { return keys.has(name) && keys.at(name) != false; };
  if (stands(kNames[0]) && stands(kNames[1]) && keys.at(kNames[0]) != keys.at(kNames[1])) {
    keys.refuse(kNames[0], std::string("it differs from ") + kNames[1] + ", which is also set; keep the right one");
  }
  for (const char* name : kNames) {
    if (!stands(name)) continue;
    if (keys.at(name) == true) keys.refuse(name, kUnscaled);
    if (!keys.at(name).is_object()) keys.refuse(name, "must be an object");
    if (std::ranges::any_of(keys.at(name), [](const Json& member) { return member.is_object(); })) {
      keys.refuse(
          name,
          "RoPE must be the same in every layer; if there is only one kind of layer, put its members here directly");
    }
    const Keys rope(keys.at(name), source + ": " + name);
    const std::string untyped = rope.has("factor") ? "" : "default";
    if (rope.text("rope_type", rope.text("type", untyped)) != "default") keys.refuse(name, kUnscaled);
    if (rope.positive("partial_rotary_factor", 1) != 1) keys.refuse(name, "RoPE must rotate whole heads");
    if (rope.has("rope_theta")) return rope.positive("rope_theta", 1);
  }
  return keys.positive("rope_theta", otherwise);
}

void read_kv_shift(const Keys& keys, HuggingFaceConfig& config) {
  if (keys.flag("shift_residual"))
    keys.refuse("shift_residual", "a residual around the shift is not supported: the taps include the current token");
  if (keys.has("shift_activation")) keys.refuse("shift_activation", "an activation in the shift is not supported");
  const auto previous = [&](const char* key) { return static_cast<int>(keys.whole(key, {}, 0, kMostPrevious)); };
  ShiftConfig& shift = config.model.shift;
  shift.query = previous("shift_q");
  shift.key = previous("shift_k");
  shift.value = previous("shift_v");
  config.states_shift = true;
  const int64_t window = 1 + most_previous_tokens(shift);
  if (keys.whole("conv_window", window) != window) {
    keys.refuse("conv_window", "the largest of shift_q, shift_k and shift_v requires " + std::to_string(window));
  }
}

void read_canon(const Keys& keys, HuggingFaceConfig& config) {
  const std::string set = keys.text("canon_set", "");
  if (!set.empty() && set != "B") keys.refuse("canon_set", "only Canon-B layers are supported");
  if (keys.flag("canon_bias")) keys.refuse("canon_bias", "a bias in the shift is not supported");
  if (keys.flag("canon_activation")) keys.refuse("canon_activation", "an activation in the shift is not supported");
  const int64_t kernel = keys.whole("canon_kernel", 4, 1, kMostPrevious + 1);
  if (!set.empty()) config.canon_kernel = kernel;
  config.canon_residual = !keys.has("canon_residual") || keys.flag("canon_residual");
}

void read_baichuan(const Keys& keys, HuggingFaceConfig& config) {
  if (keys.has("sliding_window_layers") && !keys.at("sliding_window_layers").empty()) {
    keys.refuse("sliding_window_layers", "only attention to all previous tokens, in every layer, is supported");
  }
  ShiftConfig& shift = config.model.shift;
  shift.key = shift.value = static_cast<int>(keys.whole("conv_window", 2, 2, kMostPrevious + 1)) - 1;
  config.states_shift = true;
  config.norm_head = true;
}

}  // namespace

HuggingFaceConfig parse_hugging_face_config(const ForeignConfig& json, const std::string& source) {
  const Keys keys(json, source);
  const std::string name = keys.text("model_type", "");
  const auto type = std::ranges::find_if(kModelTypes, [&](const ModelType& known) { return name == known.name; });
  if (type == std::end(kModelTypes)) {
    keys.refuse("model_type",
                "supported are llama, kv_shift_llama, LlamaCanon and baichuan_m1. Other types may hold the same "
                "tensors but compute something different: multipliers, soft caps, another rotation, or layers without "
                "one. Set model_type to llama only if the model has none of these");
  }
  HuggingFaceConfig config{.model = {}, .form = type->form};
  ModelConfig& model = config.model;
  model.shift.query = model.shift.key = model.shift.value = 0;
  model.layers = keys.whole("num_hidden_layers", {});
  model.hidden = keys.whole("hidden_size", {});
  model.heads = keys.whole("num_attention_heads", {});
  model.kv_heads = keys.whole("num_key_value_heads", model.heads);
  if (model.heads % model.kv_heads != 0)
    keys.refuse("num_key_value_heads", "must divide " + std::to_string(model.heads) + " heads");
  if (!keys.has("head_dim") && model.hidden % model.heads != 0) {
    keys.refuse("num_attention_heads",
                "must divide hidden_size " + std::to_string(model.hidden) + " if head_dim is not set");
  }
  model.head_dim = keys.whole("head_dim", model.hidden / model.heads);
  if (model.head_dim % 2 != 0) keys.refuse("head_dim", "RoPE needs an even head_dim");
  model.ffn = keys.whole("intermediate_size", {});
  model.vocab = keys.whole("vocab_size", {});
  model.norm_epsilon = keys.positive("rms_norm_eps", 1e-6);
  // The default of the model's own class.
  model.rope_base = rope_base(keys, source, config.form == HuggingFaceForm::baichuan_m1 ? 1e5 : 1e4);
  model.tie_embeddings = keys.flag("tie_word_embeddings");
  constexpr double kInitStd = 0.02;  // also for 0, which says nothing about weights that exist already
  const bool has_init_std = keys.has("initializer_range") && keys.at("initializer_range") != 0;
  model.init_std = has_init_std ? keys.positive("initializer_range", kInitStd) : kInitStd;
  config.positions = keys.whole("max_position_embeddings", 2048);
  config.norm_head = keys.flag("norm_head");
  read_tokens(keys, config);
  refuse_other_models(json, source);
  refuse_by_other_keys(keys, model.head_dim);
  if (config.form == HuggingFaceForm::kv_shift) read_kv_shift(keys, config);
  if (config.form == HuggingFaceForm::canon) read_canon(keys, config);
  if (config.form == HuggingFaceForm::baichuan_m1) read_baichuan(keys, config);
  return config;
}

void read_generation_config(const std::string& directory, HuggingFaceConfig& config) {
  const std::string path = directory + "/generation_config.json";
  if (!name_exists(path)) return;
  const Json json = read_foreign_config(path, kLongestGenerationConfig);
  read_tokens(Keys(json, path), config);
}

std::string to_hugging_face_text(const HuggingFaceConfig& config) {
  const ModelConfig& model = config.model;
  const ModelType& type = type_of(config.form);
  const int largest = most_previous_tokens(model.shift);
  CHECK(config.form != HuggingFaceForm::baichuan_m1 && (config.form != HuggingFaceForm::llama || largest == 0),
        "a shift of ", largest, " is not possible in ", type.name);
  Json json = {{"architectures", {type.architecture}},
               {"model_type", type.name},
               {"vocab_size", model.vocab},
               {"hidden_size", model.hidden},
               {"intermediate_size", model.ffn},
               {"num_hidden_layers", model.layers},
               {"num_attention_heads", model.heads},
               {"num_key_value_heads", model.kv_heads},
               {"head_dim", model.head_dim},
               {"hidden_act", "silu"},
               {"max_position_embeddings", config.positions},
               {"initializer_range", model.init_std},
               {"rms_norm_eps", model.norm_epsilon},
               {"rope_theta", model.rope_base},
               {"tie_word_embeddings", model.tie_embeddings},
               {"attention_bias", false},
               {"mlp_bias", false},
               {"bos_token_id", config.begin_token ? Json(*config.begin_token) : Json()},
               {"eos_token_id", end_json(config.end_tokens)},
               {"pad_token_id", Json()},
               {"dtype", dtype_name(config.type)}};
  if (config.form == HuggingFaceForm::kv_shift) {
    const std::string module = kModelModule;
    json["auto_map"] = {{"AutoConfig", module + ".KVShiftLlamaConfig"},
                        {"AutoModelForCausalLM", module + ".KVShiftLlamaForCausalLM"}};
    json.update({{"conv_window", 1 + largest},
                 {"shift_q", model.shift.query},
                 {"shift_k", model.shift.key},
                 {"shift_v", model.shift.value},
                 {"shift_residual", false},
                 {"shift_activation", Json()},
                 {"norm_head", false}});
  }
  if (config.form == HuggingFaceForm::canon) {
    json["auto_map"] = {{"AutoConfig", "configuration_llama_canon.LlamaCanonConfig"},
                        {"AutoModelForCausalLM", "modeling_llama_canon.LlamaCanonForCausalLM"}};
    json["torch_dtype"] = json["dtype"];  // as the transformers that LlamaCanon is written for reads it
    json.update({{"canon_set", "B"},
                 {"canon_kernel", 1 + largest},
                 {"canon_bias", false},
                 {"canon_activation", false},
                 {"canon_residual", false},
                 {"qk_norm", false},
                 {"rope_version", "huggingface"}});
  }
  return json.dump(2) + "\n";
}

std::string generation_config_text(const HuggingFaceConfig& config) {
  Json json = {{"_from_model_config", true}};
  if (!config.end_tokens.empty()) json["eos_token_id"] = end_json(config.end_tokens);
  if (config.begin_token) json["bos_token_id"] = *config.begin_token;
  const int64_t vocab = config.model.vocab;
  if (const int64_t used = config.tokenizer_vocab.value_or(vocab); used < vocab) {
    std::vector<int64_t> unused(static_cast<size_t>(vocab - used));
    std::iota(unused.begin(), unused.end(), used);
    json["suppress_tokens"] = unused;
  }
  return json.dump(2) + "\n";
}

}  // namespace shiftron
