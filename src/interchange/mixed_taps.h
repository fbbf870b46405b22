// Taps of the KV shift as the model mixes them, for models whose stored weights have another form (gate, clamp).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interchange/stored_rows.h"
#include "model/config.h"

namespace shiftron {

// [heads, previous + 1] of a stream (0 query, 1 key, 2 value) of a layer, oldest first; the token itself if the stream
// has no shift. `rows` must be those of such a model; throws Error(bad_input) if the taps are missing or have another
// shape.
std::vector<double> mixed_taps(StoredRows& rows, const ModelConfig& model, int64_t layer, int stream);

// Another source's tensors, with its taps replaced by those that are mixed, in their accumulation type.
class MixedTaps : public TensorSource {
 public:
  MixedTaps(std::unique_ptr<TensorSource> source, const ModelConfig& model);  // the source's model
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  void read(int index, const Box& box, void* to) override;
  int find(TensorGroup group, const std::string& name) const override { return source_->find(group, name); }

 private:
  struct Taps {
    int64_t layer;
    int stream;
  };
  std::unique_ptr<TensorSource> source_;
  ModelConfig model_;
  StoredRows rows_;
  std::vector<ManifestTensor> tensors_;
  std::map<int, Taps> taps_;  // by index
};

}  // namespace shiftron
