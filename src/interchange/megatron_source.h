// MegatronSource: a Llama of Megatron-LM in safetensors, read as the model's own logical tensors.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interchange/safetensors_source.h"

namespace shiftron {

// The --format of `checkpoint import` for another program's directory, judged by the names of its files and tensors:
// "hf", "megatron", or "" if it looks like neither, for example a step of ours. Does not throw for what they hold.
std::string import_format_of(const std::string& directory);

class MegatronSource : public SafetensorsSource {
 public:
  // model.safetensors (or an index and its files) with Megatron-LM's whole tensors, under the names of its GPTModel:
  // linear_qkv holds each group's queries, its key and its value, linear_fc1 gate and up; norms are stored with the
  // matrix that follows or separately; layers are numbered, or stacked in one tensor; names may begin with "model.".
  // config.json next to it has Llama's keys, ours or Megatron-LM's; it may omit sizes that follow from shapes, but not
  // RoPE's base and the norms' epsilon. `previous`: previous tokens of query, key and value, with taps of the identity.
  // Throws Error(bad_input) that names file and tensor or key if something is missing, has another shape, is not used,
  // or is no Llama; for a directory of pickles (torch_dist) it says how to convert it.
  MegatronSource(const std::string& directory, const std::array<std::optional<int>, 3>& previous = {});

 private:
  using Names = std::vector<std::string>;  // each follows "decoder.layers.N."
  const Entry* stacked(const std::string& ending) const;
  const Entry* entry_of(int64_t layer, const std::string& ending) const;
  uint64_t count_layers() const;
  void read_config(const std::string& path);
  Place layer_place(int64_t layer, const Names& endings, const std::vector<uint64_t>& shape);
  Place vocabulary_place(const std::string& name);
  Place place_of(const HuggingFaceName& name);

  std::string prefix_;  // "model." or nothing
};

}  // namespace shiftron
