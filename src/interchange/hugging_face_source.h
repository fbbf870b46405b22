// HuggingFaceSource: a directory of Hugging Face's safetensors, read as the model's own logical tensors.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "interchange/safetensors_source.h"

namespace shiftron {

struct HuggingFaceImport {
  // Previous tokens of query, key and value; nothing: as many as the files hold. If there are more than that, the older
  // taps are zero, as in the identity; fewer are refused.
  std::array<std::optional<int>, 3> previous{};
  bool norm_head = false;  // divide every row of the head by its length; a tied head is then untied
};

class HuggingFaceSource : public SafetensorsSource {
 public:
  // config.json and safetensors: transformers' Llama, KVShiftLlama, LlamaCanon, Baichuan-M1, and the names and shapes
  // under which models with KV shift were published. Throws Error(bad_input) that names file and tensor if one is
  // missing, has another shape, or is not used.
  HuggingFaceSource(const std::string& directory, const HuggingFaceImport& how = {});

 private:
  void check_sizes();
  struct Found;  // taps of one stream in one layer, as they are stored
  Found find_taps(int64_t layer, int stream);
  Found canon_taps(int64_t layer, int stream);
  std::vector<Found> stored_taps(int stream);  // of all layers
  void read_taps(const HuggingFaceImport& how);
  Place weight_place(const HuggingFaceName& name);
  void check_tied_head();

  std::map<std::pair<int64_t, int>, std::vector<double>> taps_;  // layer, stream → [heads, previous + 1]
  bool norm_head_ = false;
};

}  // namespace shiftron
