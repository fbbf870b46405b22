// Reads prompts and continues them, for models with and without a tokenizer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_writer.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/generate.h"

namespace shiftron {

constexpr const char* kStdin = "-";  // in place of a file of prompts

// The vocabulary of the model's tokenizer; without a tokenizer every id of the model, with `end_of_document`. Throws
// Error(bad_input) if `end_of_document` is missing, outside the model's vocabulary, or given in addition to a
// tokenizer.
TokenVocabulary vocabulary_of_ids(const CheckpointModel& model, std::optional<int32_t> end_of_document);
// The same with the model's tokenizer, which has been made already; null if it has none that is usable.
TokenVocabulary vocabulary_of_ids(const CheckpointModel& model, const Tokenizer* tokenizer,
                                  std::optional<int32_t> end_of_document);

// Texts: each line of a text file or of stdin ("-"), or {"prompt": "…"} on each line of a JSONL file. Blank lines are
// skipped. Throws Error(bad_input), with file and line, if a line has no prompt; also if the file has none.
std::vector<std::string> read_text_prompts(const std::string& path);

// Lines {"ids": [1, 2, …]} of a JSONL file or of stdin, each the beginning of a document; "targets" is ignored, blank
// lines are skipped. Throws Error(bad_input) with file and line if a line is not JSON, has no ids, or has an id that no
// document may contain; also if the file has no prompt.
std::vector<std::vector<int32_t>> read_prompts(const std::string& path, const TokenVocabulary& vocabulary);

// Continues each prompt `samples` times, each time independently of all others. `take` gets the continuations in the
// order of prompts and samples, the same on every rank of `world`; `show` gets each token when it is generated. Throws
// NonFiniteLogits.
void continue_prompts(const CheckpointModel& model, const std::vector<std::vector<int32_t>>& prompts,
                      const TokenVocabulary& vocabulary, const GenerateOptions& options, int64_t samples,
                      HostCommunicator& world, const HostShare& share,
                      const std::function<void(const Continuation&)>& take,
                      const std::function<void(int32_t)>& show = {});

}  // namespace shiftron
