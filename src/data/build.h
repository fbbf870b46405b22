// Builds a dataset from files of text, of prompts with completions, or of ids: reads documents, tokenizes and shuffles
// them and writes shards.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/dataset_writer.h"
#include "data/documents.h"

namespace shiftron {

struct BuildOptions : DatasetOutput {
  std::vector<std::string> inputs;             // see recognise_inputs()
  std::vector<std::string> validation_inputs;  // their documents are DIR/validation, those of `inputs` DIR/train
  std::string tokenizer;  // file or directory; may be empty with `ids`, which then use `vocabulary`
  TokenizerChoice tokenizer_choice{};
  std::optional<StoredTokenizer> stored_tokenizer{};  // what a dataset or a checkpoint at `tokenizer` holds
  std::string document_separator;                     // of text files; empty = a file is a document
  std::string text_key = "text";                      // of JSONL lines
  bool ids = false;            // the inputs are lines of ids and targets, see id_documents.h, not text
  std::string chat_template;   // the inputs are lines of messages: see chat_template_of(); empty = they are not
  uint64_t skip_bad = 0;       // so many broken lines may be left out
  TokenVocabulary vocabulary;  // for ids without a tokenizer
  std::string program;         // its version; another one does not continue what this one began
};

struct BuildResult {
  bool was_there = false;              // a killed build of the same inputs and options had finished it
  std::vector<BuiltDataset> datasets;  // one; or train and validation
  std::vector<InputFile> inputs;       // as they were read: those of the validation part first
  int64_t empty_documents = 0;         // left out
  int64_t duplicates = 0;              // left out
  int64_t unlearned_chats = 0;         // kept, but without a message of the assistant
  uint64_t foreign_bytes = 0;          // NUL or invalid UTF-8; kept
  uint64_t replaced_surrogates = 0;    // became U+FFFD
  uint64_t bad_lines = 0;              // left out
  std::vector<std::string> first_bad;  // what is wrong with the first of them; not known if it `was_there`
};

// Equal inputs and options give equal bytes, with any number of threads. Memory does not grow with the input, but holds
// each document whole and, for each thread, 4 MiB of smaller ones and 15 MiB of known words.
// Throws Error(bad_input) for faults of the input, Error(crash) if it cannot write; then nothing of the output remains.
// After a kill, the next build of the same inputs and options continues, unless it reads a pipe. Error(bad_input) if
// the inputs or options differ from those of what a killed build saved. `output` is where progress goes; `notify` is
// called with the result before the last trace of the build is removed.
BuildResult build_dataset(const BuildOptions& options, const Progress::Output& output = {},
                          const std::function<void(const BuildResult&)>& notify = {});

}  // namespace shiftron
