// SafetensorsSource: a model in another program's safetensors, read as the model's own logical tensors.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interchange/hugging_face_config.h"
#include "interchange/hugging_face_names.h"
#include "interchange/safetensors.h"

namespace shiftron {

// "[3, 4]"
std::string shape_text(const std::vector<uint64_t>& shape);

// The constructors of the derived classes say where each tensor is stored. All are float64 if one of the tensors taken
// from the files is F64, otherwise float32; other types are widened.
class SafetensorsSource : public TensorSource {
 public:
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }  // parameters
  int find(TensorGroup group, const std::string& name) const override;
  void read(int index, const Box& box, void* to) override;

  const HuggingFaceConfig& config() const { return config_; }  // its shift is that of tensors()
  const ModelConfig& model() const { return config_.model; }

 protected:
  explicit SafetensorsSource(const std::string& directory) : files_(directory) {}
  using Entry = SafetensorsDirectory::Entry;
  struct Place {
    const Entry* entry = nullptr;   // null: `values` are the elements
    uint64_t first = 0;             // element of the entry's tensor
    std::vector<uint64_t> parts{};  // the first element of each index of dim 0; empty: all follow `first`
    std::vector<double> values{};
    bool norm_rows = false;  // rows are divided by their length, at least 1e-12, as in torch's normalize()
  };
  // A tensor of the files or null; it then counts as used. Throws Error(bad_input) if its type is not one of weights.
  const Entry* take_if_present(const std::string& name);
  // Also throws Error(bad_input) if it is missing or has another shape. `sizes`: the sizes of config.json that give the
  // shape, appended to it in messages: "hidden_size 10".
  const Entry& take(const std::string& name, const std::vector<uint64_t>& shape, const std::string& sizes = "");
  void add(const HuggingFaceName& name, Place place);
  // Call after adding everything. Throws Error(bad_input) that names what was not taken, except names with one of these
  // endings.
  void finish(const std::vector<std::string>& ignored_endings);

  SafetensorsDirectory files_;
  HuggingFaceConfig config_;

 private:
  void refuse_unused(const std::vector<std::string>& ignored_endings) const;
  template <typename Real>
  void read_as(const Place& place, const Shape& shape, const Box& box, Real* to) const;
  template <typename Real>
  void read_normed(const Place& place, const Shape& shape, const Box& box, Real* to) const;
  template <typename Real>
  void read_parts(const Place& place, const Shape& shape, uint64_t from, uint64_t count, Real* to) const;

  std::vector<ManifestTensor> tensors_;
  std::vector<Place> places_;  // of tensors_
  std::map<std::string, int> by_name_;
  std::set<std::string> used_;  // of the files' tensors
};

}  // namespace shiftron
