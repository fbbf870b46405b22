// Compares the results of an export with those of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interchange/safetensors.h"
#include "model/config.h"

namespace shiftron {

// The types in which an export stores its weights. Taps are not rounded to bfloat16.
struct StoredTypes {
  StoredTypes(SafetensorsType all) : matrices(all), norms(all) {}
  StoredTypes(SafetensorsType of_matrices, SafetensorsType of_norms) : matrices(of_matrices), norms(of_norms) {}
  SafetensorsType matrices, norms;
};

// Logits [ids][vocab], computed in fp64 from the source's parameters after rounding them as an export with `types`
// does. The ids are one document that starts at position 0. One layer is in memory at a time. `layer_done` as in
// plain_logits(); `residual` gets the rows [ids][hidden] of the residual stream after the embedding and after each
// layer.
std::vector<std::vector<double>> staged_logits(TensorSource& source, const ModelConfig& model, StoredTypes types,
                                               const std::vector<int32_t>& ids,
                                               const std::function<void()>& layer_done = {},
                                               const std::function<void(const std::vector<double>&)>& residual = {});

struct ExportCheck {
  int64_t tokens = 0;
  double largest_difference = 0, largest_logit = 0;
  // Largest allowed difference, relative to the largest logit: 1e-9, or 1e-5 with gated taps, which mix in float32
  // except in fp64 runs.
  double allowed = 0;
  bool passed = false;
  double longest_activation = 0;  // Euclidean norm of a row of the residual stream
};
// Throws Error(bad_input) if there is not enough memory to check the model. Call it before an export writes.
void require_memory_of_check(const ModelConfig& model);

// Runs the source's `model`, and the export at `path` by plain_logits(), on the same tokens. Does not throw if they
// differ.
ExportCheck check_export(TensorSource& source, const ModelConfig& model, StoredTypes types, const std::string& path);

}  // namespace shiftron
