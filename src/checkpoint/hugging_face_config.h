// A model's config.json as Hugging Face's transformers reads it, and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/safetensors.h"
#include "checkpoint/their_config.h"
#include "core/enum_names.h"
#include "model/config.h"

namespace shiftron {

// llama: transformers' own Llama, no shift. kv_shift: Llama with conv_q, conv_k, conv_v, computed by the module that an
// export carries. canon: LlamaCanon (PhysicsLM4) with canonB alone and no residual. baichuan_m1: read, never written.
enum class HuggingFaceForm { llama, kv_shift, canon, baichuan_m1 };
constexpr std::array<const char*, 4> names_of(HuggingFaceForm) {
  return {"llama", "kv-shift", "canon", "baichuan-m1"};
}

// Sizes are at most this: products of two, also three times, fit 64 bits without a sign; of three they need not.
inline constexpr int64_t kLargestHuggingFaceSize = int64_t{1} << 31;

struct HuggingFaceConfig {
  ModelConfig model;  // with all sizes filled in
  HuggingFaceForm form = HuggingFaceForm::llama;
  SafetensorsType type = SafetensorsType::F32;  // of the matrices: F64, F32, BF16; written, not read
  int64_t positions = 0;                        // of the training's sequences; max_position_embeddings
  std::optional<int64_t> end_of_document{};     // the token; written, not read
  std::optional<int64_t> tokenizer_vocab{};     // tokens behind these are never to be made; written, not read
  // Read, not written:
  bool states_shift = false;    // model.shift's query, key and value were stated; else the tensors say them
  bool norm_head = false;       // logits are made with rows of the head divided by their length
  std::optional<int64_t> canon_kernel{};  // the width of canonB in every layer; nothing: no layer has one
  bool canon_residual = false;            // the row itself is added to what its taps give
};

// Llama's sizes and defaults in transformers; `model.shift.form` is free. Throws Error(bad_input) that begins with
// `source` and names the key: what this model cannot compute is refused.
HuggingFaceConfig parse_hugging_face_config(const TheirConfig& json, const std::string& source);

std::string to_hugging_face_text(const HuggingFaceConfig& config);    // config.json
std::string generation_config_text(const HuggingFaceConfig& config);  // generation_config.json

}  // namespace shiftron
