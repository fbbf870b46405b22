// A model's config.json as Hugging Face's transformers reads it, and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "interchange/foreign_config.h"
#include "interchange/safetensors.h"
#include "model/config.h"

namespace shiftron {

// llama: transformers' own Llama, no shift. kv_shift: Llama with conv_q, conv_k, conv_v, computed by the module that an
// export carries. canon: LlamaCanon (PhysicsLM4) with canonB alone and no residual. baichuan_m1: read, never written.
enum class HuggingFaceForm { llama, kv_shift, canon, baichuan_m1 };
constexpr std::array<const char*, 4> names_of(HuggingFaceForm) {
  return {"llama", "kv-shift", "canon", "baichuan-m1"};
}

// Sizes are at most this: a product of two, even times three, fits 64 unsigned bits; a product of three may not.
inline constexpr int64_t kLargestHuggingFaceSize = int64_t{1} << 31;

struct HuggingFaceConfig {
  ModelConfig model;  // with all sizes filled in
  HuggingFaceForm form = HuggingFaceForm::llama;
  SafetensorsType type = SafetensorsType::F32;  // of the matrices: F64, F32, BF16; written, not read
  int64_t positions = 0;                        // context length in tokens; max_position_embeddings
  std::vector<int64_t> end_tokens{};            // each ends a text
  std::optional<int64_t> begin_token{};         // begins a text
  std::optional<int64_t> tokenizer_vocab{};     // tokens from this number on must never be generated; written, not read
  // Read, not written:
  bool states_shift = false;  // config.json states model.shift's query, key and value; otherwise the tensors do
  bool norm_head = false;     // logits are computed with rows of the head divided by their length
  std::optional<int64_t> canon_kernel{};  // the width of canonB in every layer; nothing: no layer has one
  bool canon_residual = false;            // the row itself is added to the result of its taps
  std::vector<std::string> notes{};       // what was stated but left out
};

// Reads Llama's sizes, with the defaults of transformers; `model.shift.form` is `free`. Throws Error(bad_input) that
// begins with `source` and names the key: what this model cannot compute is refused.
HuggingFaceConfig parse_hugging_face_config(const ForeignConfig& json, const std::string& source);

// If the directory has a generation_config.json, its tokens override those of config.json. Throws Error(bad_input) that
// names file and key; a number that is no token of the vocabulary is left out, with a note.
void read_generation_config(const std::string& directory, HuggingFaceConfig& config);

std::string to_hugging_face_text(const HuggingFaceConfig& config);    // config.json
std::string generation_config_text(const HuggingFaceConfig& config);  // generation_config.json

}  // namespace shiftron
