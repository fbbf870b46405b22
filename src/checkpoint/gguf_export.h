// Writing a model without any KV shift as a GGUF file, which llama.cpp runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/gguf.h"
#include "checkpoint/tensor_source.h"
#include "model/config.h"

namespace shiftron {

struct GgufExport {
  ModelConfig model;                            // without any shift
  SafetensorsType type = SafetensorsType::F16;  // of the matrices: F32, F16, BF16; norms are F32
  int64_t positions = 0;                        // tokens of a text that it is made for; llama.context_length
  std::vector<GgufEntry> entries;               // beside the sizes: names, tokenizer.ggml.*
  // Bytes of elements written so far, of how many.
  std::function<void(uint64_t done, uint64_t total)> progress{};
  // Called with the file when all of it is written, before that gets its name. What it throws ends the export.
  std::function<void(const std::string& path)> check{};
  std::function<void(uint64_t bytes)> tell{};  // before the last trace of the export goes
};

// A model of a smaller vocabulary: the parameters of another source, which outlives this one, with `tokens` rows of
// embedding.weight and head.weight, at most as many as it has. Logits of the tokens that stay are the same: a token's
// row of the head makes its logit alone.
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

// Throws Error(bad_input), which says what to do instead, where llama.cpp could not compute what the model does.
void refuse_gguf_of(const ModelConfig& model);

// The model with its real numbers as the file holds them, in float32.
ModelConfig gguf_rounded(ModelConfig model);

// Writes the source's parameters as the file `named`, by an ExportUnderWay. Rows of queries and keys lie in the order
// in which llama.cpp rotates them: channels i and i + head_dim / 2 of ours are its 2i and 2i + 1. Returns the file's
// bytes. Memory: a few megabytes, or a head's rows. Errors: the file is there, the model shifts, a weight is not finite
// or does not fit the type, a tensor is missing (bad_input); no room (crash); what the source throws.
uint64_t write_gguf(TensorSource& source, const GgufExport& how, const std::string& named);

}  // namespace shiftron
