// What an export computes, against what the model computes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_source.h"
#include "model/config.h"

namespace shiftron {

// What an export stores its weights in; taps are not rounded.
struct StoredTypes {
  StoredTypes(SafetensorsType all) : matrices(all), norms(all) {}
  StoredTypes(SafetensorsType of_matrices, SafetensorsType of_norms) : matrices(of_matrices), norms(of_norms) {}
  SafetensorsType matrices, norms;
};

// Logits [ids][vocab] in fp64 of the source's parameters, rounded as an export of `types` rounds them; the ids are one
// document from position 0. One layer is in memory at a time. `layer_done` as in plain_logits(); `residual` gets the
// rows [ids][hidden] of the residual stream after the embedding and after each layer.
std::vector<std::vector<double>> staged_logits(TensorSource& source, const ModelConfig& model, StoredTypes types,
                                               const std::vector<int32_t>& ids,
                                               const std::function<void()>& layer_done = {},
                                               const std::function<void(const std::vector<double>&)>& residual = {});

struct ExportCheck {
  int64_t tokens = 0;
  double largest_difference = 0, largest_logit = 0;
  // Difference: 1e-9 of the largest logit, with gated taps 1e-5 of it, since these mix in float32 but in fp64 runs.
  double allowed = 0;
  bool passed = false;
  double longest_activation = 0;  // Euclidean norm of a row of the residual stream
};
// Throws Error(bad_input) where memory does not suffice for a check of the model: to be called before an export writes.
void require_memory_of_check(const ModelConfig& model);

// The source's `model` and the export at `path`, as plain_logits() reads it, on the same tokens. Nothing is thrown for
// a difference.
ExportCheck check_export(TensorSource& source, const ModelConfig& model, StoredTypes types, const std::string& path);

}  // namespace shiftron
