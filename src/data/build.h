// Builds a dataset from files of text, of prompts with completions, or of ids: documents, tokens, shuffling, shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/dataset_writer.h"
#include "data/documents.h"

namespace shiftron {

struct BuildOptions : DatasetOutput {
  std::vector<std::string> inputs;
  std::string tokenizer;           // path of the model; with `ids` it may be empty, which `vocabulary` then replaces
  std::string document_separator;  // of text files; empty = a file is a document
  std::string text_key = "text";   // of JSONL lines
  bool ids = false;                // the inputs are lines of ids and targets, see id_documents.h, not text
  TokenVocabulary vocabulary;      // of ids without a tokenizer
};

struct BuildResult {
  bool was_there = false;              // a killed build of the same inputs and options had made it
  std::vector<BuiltDataset> datasets;  // one; or train and validation
  std::vector<InputFile> inputs;       // as they were read
  int64_t empty_documents = 0;         // left out
  uint64_t foreign_bytes = 0;          // NUL or no UTF-8; kept
};

// Equal inputs and options give equal bytes, by any number of threads. Memory does not grow with the input, but holds
// each document whole, and for each thread 4 MiB of smaller ones and 15 MiB of known words.
// Throws Error(bad_input) for faults of the input, Error(crash) where it cannot write; then nothing of it remains. What
// a killed one left the next one removes, or takes as its own where it is whole and of the same inputs and options.
// `output` is where progress goes; `tell` is called with the result before the last trace of the build goes.
BuildResult build_dataset(const BuildOptions& options, const Progress::Output& output = {},
                          const std::function<void(const BuildResult&)>& tell = {});

}  // namespace shiftron
