// Names and row orders as in megatron/core/models/gpt and megatron/core/transformer.
#include "interchange/megatron_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"

namespace shiftron {
namespace {

using Json = ForeignConfig;
constexpr int kMostPrevious = 3;
constexpr char kExtraState[] = "_extra_state";  // of scaled types
constexpr uint64_t kMostLayers = 10'000;        // each gets an entry before its tensors are checked
constexpr char kQkv[] = "self_attention.linear_qkv.weight", kProjection[] = "self_attention.linear_proj.weight";
constexpr char kUp[] = "mlp.linear_fc1.weight", kDown[] = "mlp.linear_fc2.weight";
constexpr char kTable[] = "embedding.word_embeddings.weight", kHead[] = "output_layer.weight";

// Keys of Llama's config.json, each with ours and Megatron-LM's.
constexpr std::array<std::array<const char*, 3>, 11> kMegatronKeys = {
    {{"num_hidden_layers", "layers", "num_layers"},
     {"hidden_size", "hidden", "hidden_size"},
     {"num_attention_heads", "heads", "num_attention_heads"},
     {"num_key_value_heads", "kv_heads", "num_query_groups"},
     {"head_dim", "head_dim", "kv_channels"},
     {"intermediate_size", "ffn", "ffn_hidden_size"},
     {"vocab_size", "vocab", "vocab_size"},
     {"rope_theta", "rope_base", "rotary_base"},
     {"rms_norm_eps", "norm_epsilon", "layernorm_epsilon"},
     {"tie_word_embeddings", "tie_embeddings", ""},
     {"max_position_embeddings", "sequence_length", "seq_length"}}};

[[noreturn]] void refuse_pickles(const std::string& directory, const std::string& file) {
  throw_bad_input(directory, " holds ", file,
                  ": it is a checkpoint of torch.distributed, whose files are pickles. Pickles can run code, so they "
                  "are never read; if you trust it, convert it to model.safetensors with the lines of Python in "
                  "docs/interchange.md, and put config.json next to it");
}

bool holds(const std::string& directory, const std::string& file) {
  return name_exists(directory + "/" + file);
}

bool holds_safetensors(const std::string& directory) {
  return holds(directory, "model.safetensors") || holds(directory, "model.safetensors.index.json");
}

// A file as torch.distributed or older Megatron-LM write it; "" if there is none.
std::string pickle_in(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    const bool is_known = name == ".metadata" || name == "common.pt" || name.ends_with(".distcp");
    if (is_known || name.starts_with("mp_rank_")) return name;
  }
  return "";
}

// Returns the directory; refuses one that holds pickles alone.
const std::string& without_pickles(const std::string& directory) {
  const std::string pickle = pickle_in(directory);
  if (!holds_safetensors(directory) && !pickle.empty()) refuse_pickles(directory, pickle);
  return directory;
}

bool has_megatron_tensors(const std::string& directory) {
  try {
    const SafetensorsDirectory files(directory);
    return files.find(kTable) != nullptr || files.find("model." + std::string(kTable)) != nullptr;
  } catch (const Error&) {  // the import reports why
    return false;
  }
}

// Rewrites arguments that say the same in another way, and drops those that say nothing.
Json with_plain_arguments(Json json, const std::string& path) {
  constexpr char kUntied[] = "untie_embeddings_and_output_weights";
  if (has_key(json, kUntied)) {
    if (!json[kUntied].is_boolean()) throw_bad_input(path, ": ", kUntied, " must be true or false");
    const bool tied = !json[kUntied].get<bool>();
    for (const char* name : {"tie_word_embeddings", "tie_embeddings"}) {
      if (has_key(json, name) && json[name] != tied) {
        throw_bad_input(path, ": ", kUntied, " and ", name, " contradict each other; keep one");
      }
    }
    json["tie_word_embeddings"] = tied;
  }
  // Without grouped queries Megatron-LM uses as many groups as heads, whatever this number is.
  if (has_key(json, "group_query_attention") && json["group_query_attention"] == false) json.erase("num_query_groups");
  // With the length that the model was trained on, max_position_embeddings is only the number of possible positions.
  if (has_key(json, "seq_length") || has_key(json, "sequence_length")) json.erase("max_position_embeddings");
  return json;
}

// The same object under Llama's keys.
Json with_llama_keys(Json json, const std::string& path) {
  for (const auto& names : kMegatronKeys) {
    const char* given = nullptr;
    Json value;
    for (const char* name : names) {
      if (!has_key(json, name) || (given != nullptr && std::string_view(given) == name)) continue;
      if (given != nullptr && json[name] != value) {
        throw_bad_input(path, ": ", given, " and ", name, " are the same setting, but differ; keep one");
      }
      given = name;
      value = json[name];
    }
    for (const char* name : names) json.erase(name);
    if (given != nullptr) json[names[0]] = value;
  }
  if (!json.contains("model_type")) json["model_type"] = "llama";
  return json;
}

// The number of layers that a stacked tensor holds.
uint64_t layers_of(const SafetensorsDirectory::Entry& entry) {
  const std::vector<uint64_t>& shape = entry.tensor->shape;
  return shape.empty() || entry.tensor->count() == 0 ? 0 : shape[0];
}

}  // namespace

std::string import_format_of(const std::string& directory) {
  if (holds(directory, kManifestName)) return "";
  const bool has_tensors = holds_safetensors(directory);
  const bool is_megatron = has_tensors ? has_megatron_tensors(directory) : !pickle_in(directory).empty();
  if (is_megatron) return "megatron";
  return has_tensors || holds(directory, "config.json") ? "hf" : "";
}

// The tensor that stacks all layers, or null.
const SafetensorsSource::Entry* MegatronSource::stacked(const std::string& ending) const {
  return files_.find(prefix_ + "decoder.layers." + ending);
}

const SafetensorsSource::Entry* MegatronSource::entry_of(int64_t layer, const std::string& ending) const {
  return files_.find(prefix_ + "decoder.layers." + std::to_string(layer) + "." + ending);
}

// From the stacked tensors, otherwise the count of layer numbers in the names. Throws if stacked tensors disagree.
uint64_t MegatronSource::count_layers() const {
  const std::string prefix = prefix_ + "decoder.layers.";
  std::set<std::string> numbers;
  const Entry* first = stacked(kProjection);
  for (const auto& [name, entry] : files_.tensors()) {
    if (!name.starts_with(prefix) || name.ends_with(kExtraState)) continue;
    const std::string number = name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size());
    if (!number.empty() && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) {
      numbers.insert(number);
    } else if (first != nullptr && layers_of(entry) != layers_of(*first)) {
      throw_bad_input(entry.file->path(), ": tensor ", name, " is ", entry.tensor->shape_text(), ", but ",
                      first->tensor->name, " holds ", layers_of(*first), " layers");
    }
  }
  const uint64_t layers = first != nullptr ? layers_of(*first) : numbers.size();
  if (layers > kMostLayers) {
    throw_bad_input(files_.directory(), ": the files hold ", layers, " layers, but at most ", kMostLayers,
                    " are supported");
  }
  return layers;
}

MegatronSource::MegatronSource(const std::string& directory, const std::array<std::optional<int>, 3>& previous)
    : SafetensorsSource(without_pickles(directory)) {
  if (files_.find("model." + std::string(kTable)) != nullptr) prefix_ = "model.";
  read_config(directory + "/config.json");
  read_generation_config(directory, config_);
  ShiftConfig& shift = config_.model.shift;
  int* const streams[] = {&shift.query, &shift.key, &shift.value};
  for (size_t stream = 0; stream < 3; ++stream) {
    *streams[stream] = previous[stream].value_or(0);
    if (*streams[stream] > kMostPrevious) throw_bad_input("at most ", kMostPrevious, " previous tokens are supported");
  }
  for (const HuggingFaceName& name : hugging_face_names(config_.model)) {
    if (name.stream < 0) {
      add(name, place_of(name));
      continue;
    }
    std::vector<double> taps(static_cast<size_t>(name.shape.count()), 0.0);  // [heads, previous + 1], the identity
    const auto width = static_cast<size_t>(name.shape[1]);
    for (size_t at = width - 1; at < taps.size(); at += width) taps[at] = 1;
    add(name, {.values = std::move(taps)});
  }
  finish({kExtraState, "rotary_pos_emb.inv_freq"});  // which follows from RoPE's base
}

// Sizes that are not given are taken from the tensors.
void MegatronSource::read_config(const std::string& path) {
  const Json given = read_foreign_config(path);
  refuse_other_models(given, path);
  Json json = with_llama_keys(with_plain_arguments(given, path), path);
  for (const auto& names : kMegatronKeys) {
    if ((names[0] == std::string("rope_theta") || names[0] == std::string("rms_norm_eps")) &&
        !json.contains(names[0])) {
      throw_bad_input(
          path, ": ", names[0], " (or ", names[1], ", ", names[2],
          ") is missing, and the tensors do not determine it; add the value that the model was trained with");
    }
  }
  const auto need = [&](const Entry* entry, const std::string& name, size_t dims) -> std::vector<uint64_t> {
    if (entry == nullptr) throw_bad_input(files_.directory(), ": tensor ", prefix_, name, " is missing");
    if (entry->tensor->shape.size() != dims) {
      throw_bad_input(entry->file->path(), ": tensor ", entry->tensor->name, " is ", entry->tensor->shape_text(),
                      ", must have ", dims, " dims");
    }
    return {entry->tensor->shape.end() - 2, entry->tensor->shape.end()};
  };
  const auto in_layer = [&](const char* ending) {
    const Entry* all = stacked(ending);
    return all != nullptr ? need(all, "", 3) : need(entry_of(0, ending), "decoder.layers.0." + std::string(ending), 2);
  };
  const auto otherwise = [&](const char* key, uint64_t value) {
    if (!json.contains(key)) json[key] = value;
  };
  const auto whole = [&](const char* key) -> uint64_t {
    return json.contains(key) && json[key].is_number_unsigned() ? json[key].get<uint64_t>() : 0;
  };
  const auto table = need(files_.find(prefix_ + kTable), kTable, 2);
  otherwise("vocab_size", table[0]);
  otherwise("hidden_size", table[1]);
  const uint64_t layers = count_layers();
  otherwise("num_hidden_layers", layers);
  if (whole("num_hidden_layers") != layers) {
    throw_bad_input(path, ": num_hidden_layers is ", json["num_hidden_layers"].dump(), ", but the files hold ", layers,
                    " layers");
  }
  const uint64_t attended = in_layer(kProjection)[1], rows = in_layer(kQkv)[0];
  otherwise("intermediate_size", in_layer(kDown)[1]);
  if (whole("num_attention_heads") > 0) otherwise("head_dim", attended / whole("num_attention_heads"));
  if (whole("head_dim") > 0) otherwise("num_attention_heads", attended / whole("head_dim"));
  if (!json.contains("num_attention_heads")) {
    throw_bad_input(path, ": num_attention_heads (or heads) is missing, and the tensors do not determine it");
  }
  if (has_key(given, "group_query_attention") && given["group_query_attention"] == false) {
    otherwise("num_key_value_heads", whole("num_attention_heads"));
  }
  if (whole("head_dim") > 0 && rows > attended)
    otherwise("num_key_value_heads", (rows - attended) / whole("head_dim") / 2);
  const bool has_head = files_.find(prefix_ + kHead) != nullptr;
  if (!json.contains("tie_word_embeddings")) json["tie_word_embeddings"] = !has_head;
  if (json["tie_word_embeddings"] == true && has_head) {
    throw_bad_input(
        path,
        ": the head is tied (tie_word_embeddings, or untie_embeddings_and_output_weights false), but the files hold ",
        prefix_, kHead, "; keep one of them");
  }
  config_ = parse_hugging_face_config(json, path);
  if (config_.form != HuggingFaceForm::llama) throw_bad_input(path, ": model_type must be llama, or left out");
  const ModelConfig& model = config_.model;  // checked before anything is allocated from its sizes
  const uint64_t stated = (static_cast<uint64_t>(model.heads) + 2 * static_cast<uint64_t>(model.kv_heads)) *
                          static_cast<uint64_t>(model.head_dim);
  if (stated != rows) {
    throw_bad_input(path, ": num_attention_heads ", model.heads, ", num_key_value_heads ", model.kv_heads,
                    " and head_dim ", model.head_dim, " imply ", stated, " rows of ", kQkv, ", but the files hold ",
                    rows);
  }
}

// The layer's tensor under one of these names, by itself or stacked with all layers; refuses two of them.
MegatronSource::Place MegatronSource::layer_place(int64_t layer, const Names& endings,
                                                  const std::vector<uint64_t>& shape) {
  const std::string prefix = prefix_ + "decoder.layers.", own = prefix + std::to_string(layer) + ".";
  std::vector<std::string> there;
  for (const std::string& ending : endings) {
    for (const std::string& name : {own + ending, prefix + ending}) {
      if (files_.find(name) != nullptr) there.push_back(name);
    }
  }
  if (there.size() > 1) {
    throw_bad_input(files_.directory(), ": tensors ", there[0], " and ", there[1], " are the same parameter; keep one");
  }
  if (there.empty() || there[0].starts_with(own))
    return {.entry = &take(there.empty() ? own + endings[0] : there[0], shape)};
  std::vector<uint64_t> all = shape;
  all.insert(all.begin(), static_cast<uint64_t>(config_.model.layers));
  const Entry& entry = take(there[0], all);
  return {.entry = &entry,
          .first = static_cast<uint64_t>(layer) * SafetensorsTensor{.name = {}, .shape = shape}.count()};
}

// Megatron-LM pads the vocabulary: rows from vocab_size on belong to no token.
MegatronSource::Place MegatronSource::vocabulary_place(const std::string& name) {
  const auto vocab = static_cast<uint64_t>(config_.model.vocab), hidden = static_cast<uint64_t>(config_.model.hidden);
  const Entry* entry = files_.find(prefix_ + name);
  const bool is_padded = entry != nullptr && entry->tensor->shape.size() == 2 && entry->tensor->shape[0] > vocab;
  return {.entry = &take(prefix_ + name, {is_padded ? entry->tensor->shape[0] : vocab, hidden})};
}

MegatronSource::Place MegatronSource::place_of(const HuggingFaceName& name) {
  const ModelConfig& model = config_.model;
  const auto is = [&](const char* ending) { return name.ours.ends_with(ending); };
  const auto heads = static_cast<uint64_t>(model.heads), groups = static_cast<uint64_t>(model.kv_heads);
  const auto head_dim = static_cast<uint64_t>(model.head_dim), hidden = static_cast<uint64_t>(model.hidden),
             ffn = static_cast<uint64_t>(model.ffn);
  if (name.ours == "embedding.weight") return vocabulary_place(kTable);
  if (name.ours == "head.weight") return vocabulary_place(kHead);
  if (name.ours == "final_norm.weight") return {.entry = &take(prefix_ + "decoder.final_layernorm.weight", {hidden})};
  if (is("attention_norm.weight")) {
    return layer_place(name.layer, {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"}, {hidden});
  }
  if (is("mlp_norm.weight")) {
    return layer_place(name.layer, {"mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"}, {hidden});
  }
  if (is("attention.out.weight")) return layer_place(name.layer, {kProjection}, {hidden, heads * head_dim});
  if (is("mlp.down.weight")) return layer_place(name.layer, {kDown}, {hidden, ffn});
  if (is("mlp.gate.weight") || is("mlp.up.weight")) {
    const char* half = is("mlp.gate.weight") ? "mlp.linear_fc1.weight_w" : "mlp.linear_fc1.weight_v";
    if (stacked(half) != nullptr || entry_of(name.layer, half) != nullptr) {
      return layer_place(name.layer, {half}, {ffn, hidden});
    }
    Place place = layer_place(name.layer, {kUp}, {2 * ffn, hidden});
    if (is("mlp.up.weight")) place.first += ffn * hidden;
    return place;
  }
  Place place = layer_place(name.layer, {kQkv}, {(heads + 2 * groups) * head_dim, hidden});
  const uint64_t queries = heads / groups, group = queries + 2;  // heads
  const auto part = [&](uint64_t head) { place.parts.push_back(place.first + head * head_dim * hidden); };
  for (uint64_t head = 0; is("attention.query.weight") && head < heads; ++head) {
    part(head / queries * group + head % queries);
  }
  for (uint64_t head = 0; is("attention.key.weight") && head < groups; ++head) part(head * group + queries);
  for (uint64_t head = 0; is("attention.value.weight") && head < groups; ++head) part(head * group + queries + 1);
  CHECK(!place.parts.empty(), name.ours);
  return place;
}

}  // namespace shiftron
