// HuggingFaceSource: a directory of Hugging Face's safetensors, read as the model's own logical tensors.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hugging_face_config.h"
#include "checkpoint/hugging_face_names.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

struct HuggingFaceImport {
  // Previous tokens of query, key and value; nothing: what the files hold. Taps that they lack are those of the
  // identity; fewer than they hold are refused.
  std::array<std::optional<int>, 3> previous{};
  bool norm_head = false;  // divide every row of the head by its length; a tied head is then untied
};

class HuggingFaceSource : public TensorSource {
 public:
  // config.json and safetensors: transformers' Llama, KVShiftLlama, LlamaCanon, Baichuan-M1, and the names and shapes
  // that models with KV shift were published under. F64 is rounded to float32, other types are widened. Throws
  // Error(bad_input) that names file and tensor: what is missing, has another shape, or is not used.
  HuggingFaceSource(const std::string& directory, const HuggingFaceImport& how = {});

  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }  // parameters, float32
  int find(TensorGroup group, const std::string& name) const override;
  void read(int index, const Box& box, void* to) override;

  const HuggingFaceConfig& config() const { return config_; }  // its shift is that of tensors()
  const ModelConfig& model() const { return config_.model; }

 private:
  using Entry = SafetensorsDirectory::Entry;
  struct Place {
    const Entry* entry = nullptr;  // null for taps
    uint64_t first = 0;            // element of the entry's tensor
    std::vector<float> taps{};
    bool norm_rows = false;
  };
  struct Found;  // taps of one stream in one layer, as they are stored
  const Entry& take(const std::string& name, const std::vector<uint64_t>& shape);
  const Entry* take_if_there(const std::string& name);
  Found find_taps(int64_t layer, int stream);
  Found canon_taps(int64_t layer, int stream);
  void read_taps(const HuggingFaceImport& how);
  Place weight_place(const HuggingFaceName& name);
  void check_tied_head();
  void refuse_unused() const;
  void read_normed(const Place& place, const Shape& shape, const Box& box, float* to) const;

  SafetensorsDirectory files_;
  HuggingFaceConfig config_;
  std::vector<ManifestTensor> tensors_;
  std::vector<Place> places_;  // of tensors_
  std::map<std::string, int> by_name_;
  std::map<std::string, bool> used_;                            // of the files' tensors
  std::map<std::pair<int64_t, int>, std::vector<float>> taps_;  // layer, stream → [heads, previous + 1]
  bool norm_head_ = false;
};

}  // namespace shiftron
