// Writes a model without KV shift as a GGUF file, which llama.cpp runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interchange/gguf.h"
#include "model/config.h"

namespace shiftron {

struct GgufExport {
  ModelConfig model;                            // without any shift
  SafetensorsType type = SafetensorsType::F16;  // of the matrices: F32, F16, BF16; norms are F32
  int64_t positions = 0;                        // context length in tokens; llama.context_length
  std::vector<GgufEntry> entries;               // in addition to the sizes: names, tokenizer.ggml.*
  // Bytes of elements written so far, and in total.
  std::function<void(uint64_t done, uint64_t total)> progress{};
  // Called with the complete file before it gets its final name. What it throws ends the export.
  std::function<void(const std::string& path)> check{};
  std::function<void(uint64_t bytes)> notify{};  // reports the result, before the mark is removed
};

// A model with a smaller vocabulary: the parameters of another source, which must outlive this one, with the first
// `tokens` rows of embedding.weight and head.weight; `tokens` must not exceed their rows. Logits of the remaining
// tokens are the same, because each depends on no row of the head but its own.
class FirstTokens : public TensorSource {
 public:
  FirstTokens(TensorSource& source, int64_t tokens);
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  void read(int index, const Box& box, void* to) override { source_.read(index, box, to); }
  int find(TensorGroup group, const std::string& name) const override { return source_.find(group, name); }

 private:
  TensorSource& source_;
  std::vector<ManifestTensor> tensors_;
};

// Throws Error(bad_input), which says what to do instead, if llama.cpp cannot compute what the model does.
void refuse_gguf_of(const ModelConfig& model);

// The model with its real numbers rounded to float32, as the file holds them.
ModelConfig gguf_rounded(ModelConfig model);

// Writes the source's parameters as the file `named`, with an UnfinishedExport. Rows of queries and keys are reordered
// as llama.cpp rotates them: our channels i and i + head_dim / 2 become 2i and 2i + 1. Returns the file's size in
// bytes. Memory: a few megabytes, or a head's rows. Errors: the file exists, the model has a KV shift, a weight is not
// finite or does not fit the type, a tensor is missing (bad_input); no room (crash); what the source throws.
uint64_t write_gguf(TensorSource& source, const GgufExport& how, const std::string& named);

}  // namespace shiftron
