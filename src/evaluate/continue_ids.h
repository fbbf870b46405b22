// Continuations of prompts that are lists of ids, for models with and without a tokenizer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_writer.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/generate.h"

namespace shiftron {

// The vocabulary of the model's tokenizer; without a tokenizer every id of the model, with `end_of_document`. Throws
// Error(bad_input) if `end_of_document` is missing, outside the model's vocabulary, or given in addition to a
// tokenizer.
TokenVocabulary vocabulary_of_ids(const CheckpointModel& model, std::optional<int32_t> end_of_document);

// Lines {"ids": [1, 2, …]} of a JSONL file, each the beginning of a document; "targets" is ignored, blank lines are
// skipped. Throws Error(bad_input) with file and line if a line is not JSON, has no ids, or has an id that no document
// may contain; also if the file has no prompt.
std::vector<std::vector<int32_t>> read_prompts(const std::string& path, const TokenVocabulary& vocabulary);

struct Continuation {
  std::vector<int32_t> ids;  // without the end-of-document token
  bool ended = false;        // by that token; otherwise by options.tokens
};

// Continues each prompt independently: the random draws of each start from options.seed. `take` gets the continuations
// in the order of the prompts, the same on every rank of `world`. Throws NonFiniteLogits.
void continue_prompts(const CheckpointModel& model, const std::vector<std::vector<int32_t>>& prompts,
                      const TokenVocabulary& vocabulary, const GenerateOptions& options, HostCommunicator& world,
                      const HostShare& share, const std::function<void(const Continuation&)>& take);

}  // namespace shiftron
