// Writes a model as a directory that Hugging Face's transformers loads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "checkpoint/tensor_source.h"
#include "interchange/hugging_face_config.h"

namespace shiftron {

// The form for `model`: llama if nothing shifts and its width is a multiple of its heads, as transformers' Llama
// demands; otherwise kv_shift.
HuggingFaceForm usual_form(const ModelConfig& model);

struct HuggingFaceExport {
  HuggingFaceConfig config;                  // form: usual_form(); kv_shift holds any model, canon those that shift
  std::map<std::string, std::string> files;  // further files, the tokenizer's; name → bytes
  uint64_t shard_bytes = 5'000'000'000;      // of elements in one file, at most
  // Bytes of elements written so far, and in total.
  std::function<void(uint64_t done, uint64_t total)> progress{};
  // Called when all of it is in `directory`, before it gets its final name; returns further files. What it throws ends
  // the export.
  std::function<std::map<std::string, std::string>(const std::string& directory)> check{};
  std::function<void(const struct WrittenExport& written)> notify{};  // reports the result, before the mark is removed
};

struct WrittenExport {
  std::string directory;
  std::vector<std::string> files;  // sorted
  uint64_t bytes = 0;              // of all of them
};

// Writes the source's parameters as `directory`, which must not exist. Writes to DIRECTORY.tmp first; that is removed
// if anything fails, and swept after an export was killed. Taps are written as the model mixes them, in float32 or
// wider; bfloat16 elements are those that a bf16 run's matrix products read. Memory: a few megabytes. Errors: the
// directory exists, the form cannot hold the shift, a weight is not finite, a tensor is missing (bad_input); no room
// (crash); what the source throws.
WrittenExport write_hugging_face(TensorSource& source, const HuggingFaceExport& how, const std::string& directory);

}  // namespace shiftron
