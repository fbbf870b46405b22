// A source of tensors in memory, for tests of exports and imports.
#pragma once

#include "checkpoint/fixture.h"
#include "core/philox.h"
#include "interchange/hugging_face_export.h"
#include "interchange/hugging_face_names.h"

namespace shiftron::testing {

// The parameters of a model with values of any float32 bits that arithmetic makes; taps of both signs, some outside of
// [0, 1].
class MemorySource : public TensorSource {
 public:
  explicit MemorySource(const ModelConfig& model, double scale = 0.3) {
    for (const HuggingFaceName& name : hugging_face_names(model)) {
      const Philox random(7, name.ours);
      std::vector<float> values(static_cast<size_t>(name.shape.count()));
      for (size_t i = 0; i < values.size(); ++i) {
        const double normal = random.normal(i);
        values[i] = static_cast<float>(name.stream >= 0         ? 0.5 + normal
                                       : name.shape.dims() == 1 ? 1 + scale * normal
                                                                : scale * normal);
      }
      add(name.ours, name.shape, std::move(values));
    }
  }
  void add(std::string name, Shape shape, std::vector<float> values, TensorGroup group = TensorGroup::parameters) {
    tensors_.push_back({group, std::move(name), shape, DType::float32});
    values_.push_back(std::move(values));
  }
  std::vector<float>& values(const std::string& name) {
    const int index = find(TensorGroup::parameters, name);
    EXPECT_GE(index, 0) << name;
    return values_.at(static_cast<size_t>(index));
  }
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  int find(TensorGroup group, const std::string& name) const override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].group == group && tensors_[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  void read(int index, const Box& box, void* to) override {
    largest_read = std::max(largest_read, box.extent.count());
    for_each_run(whole_box(tensors_[static_cast<size_t>(index)].shape), box, box,
                 [&](int64_t from, int64_t at, int64_t count) {
                   std::copy_n(values_[static_cast<size_t>(index)].begin() + from, count, static_cast<float*>(to) + at);
                 });
  }
  int64_t largest_read = 0;  // elements

 private:
  std::vector<ManifestTensor> tensors_;
  std::vector<std::vector<float>> values_;
};

// An odd vocabulary, hidden not heads · head_dim, grouped queries unless `kv_heads` says otherwise.
inline ModelConfig small_model(const ShiftConfig& shift, int64_t kv_heads = 2, bool tied = false, int64_t hidden = 10) {
  return {.layers = 2,
          .hidden = hidden,
          .heads = 4,
          .kv_heads = kv_heads,
          .head_dim = 6,
          .ffn = 14,
          .vocab = 19,
          .rope_base = 12345,
          .norm_epsilon = 1e-3,
          .tie_embeddings = tied,
          .init_std = 0.3,
          .shift = shift};
}

struct ShiftCase {
  const char* name;
  ShiftConfig shift;
  int64_t kv_heads = 2;
  bool tied = false;
  int64_t hidden = 10;
};
inline ModelConfig model_of(const ShiftCase& item) {
  return small_model(item.shift, item.kv_heads, item.tied, item.hidden);
}
inline void PrintTo(const ShiftCase& item, std::ostream* out) {
  *out << item.name;
}

inline HuggingFaceExport export_of(const ModelConfig& model, HuggingFaceForm form,
                                   SafetensorsType type = SafetensorsType::F32) {
  HuggingFaceExport how;
  how.config = {.model = model, .form = form, .type = type, .positions = 64, .end_tokens = {2}};
  return how;
}

}  // namespace shiftron::testing
