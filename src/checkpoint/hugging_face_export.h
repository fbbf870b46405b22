// Writing a model as a directory that Hugging Face's transformers loads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "checkpoint/hugging_face_config.h"
#include "checkpoint/tensor_source.h"

namespace shiftron {

// The form that holds `model`: llama where nothing shifts and the heads divide its width, which transformers' Llama
// demands, else kv_shift.
HuggingFaceForm usual_form(const ModelConfig& model);

struct HuggingFaceExport {
  HuggingFaceConfig config;                  // form: usual_form(); kv_shift holds all, canon those that shift
  std::map<std::string, std::string> files;  // what lies beside: the tokenizer's files; name → bytes
  uint64_t shard_bytes = 5'000'000'000;      // of elements in one file, at most
  // Bytes of elements written so far, of how many.
  std::function<void(uint64_t done, uint64_t total)> progress{};
  // Called when all of it is in `directory`, before that gets its name; returns further files. What it throws ends the
  // export.
  std::function<std::map<std::string, std::string>(const std::string& directory)> check{};
  std::function<void(const struct WrittenExport& written)> tell{};  // before the last trace of the export goes
};

struct WrittenExport {
  std::string directory;
  std::vector<std::string> files;  // sorted
  uint64_t bytes = 0;              // of all of them
};

// Writes the source's parameters as `directory`, which must not be there: to DIRECTORY.tmp first, which is removed
// where anything fails and swept where an export was killed. Taps are written as they mix, float32 or wider; elements
// in bfloat16 are those that a bf16 run's products read. Memory: a few megabytes. Errors: the directory is there, the
// form does not hold the shift, a weight is not finite, a tensor is missing (bad_input); no room (crash); what the
// source throws.
WrittenExport write_hugging_face(TensorSource& source, const HuggingFaceExport& how, const std::string& directory);

}  // namespace shiftron
