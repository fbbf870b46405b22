// What an export computes, against what the model computes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/hugging_face_config.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

// Logits [ids][vocab] in fp64 of the source's parameters, rounded as an export of `type` rounds them; the ids are one
// document from position 0. One layer is in memory at a time. `layer_done` as in plain_logits().
std::vector<std::vector<double>> staged_logits(TensorSource& source, const ModelConfig& model, SafetensorsType type,
                                               const std::vector<int32_t>& ids,
                                               const std::function<void()>& layer_done = {});

struct ExportCheck {
  int64_t tokens = 0;
  double largest_difference = 0, largest_logit = 0;
  // Difference: 1e-9 of the largest logit, with gated taps 1e-5 of it, since these mix in float32 but in fp64 runs.
  double allowed = 0;
  bool passed = false;
};
// Both on the same tokens. Nothing is thrown for a difference.
ExportCheck check_export(TensorSource& source, const HuggingFaceConfig& config, const std::string& directory);

}  // namespace shiftron
