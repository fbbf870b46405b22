// The model's parameters and their names in Hugging Face's files.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/config.h"
#include "parallel/parameter.h"

namespace shiftron {

// One parameter under both names. Elements have the same order: their shape is ours with heads and head_dim merged.
struct HuggingFaceName {
  std::string ours, theirs;  // theirs is empty for taps
  Shape shape;               // ours
  std::vector<uint64_t> foreign_shape;
  int layer = -1;   // −1 outside of the layers
  int stream = -1;  // of taps: 0 query, 1 key, 2 value
};

// In the order in which the model declares them. It builds a model's declarations, so do not call it for each tensor.
std::vector<HuggingFaceName> hugging_face_names(const ModelConfig& model);

std::string name_of_taps(int64_t layer, int stream);  // ours

inline constexpr std::array<const char*, 3> kConvolutions = {"conv_q", "conv_k", "conv_v"};  // taps, by stream
inline std::string attention_prefix(int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".self_attn.";
}

}  // namespace shiftron
