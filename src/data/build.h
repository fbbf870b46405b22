// Builds a dataset from text files: documents, tokens, shuffling, shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/documents.h"

namespace shiftron {

struct BuildOptions {
  std::vector<std::string> inputs;
  std::string tokenizer;           // path of the model
  std::string output;              // directory: new, or empty
  std::string document_separator;  // of text files; empty = a file is a document
  std::string text_key = "text";   // of JSONL lines
  double validation_fraction = 0;  // > 0: datasets in output/train and output/validation
  int64_t shard_tokens = int64_t{1} << 28;
  uint64_t seed = 0;  // of the documents' order
  int threads = 1;    // that tokenize; which one tokenizes what cannot be seen in the dataset
};

struct BuiltDataset {
  std::string directory;
  int64_t documents = 0;
  int64_t tokens = 0;  // with one end-of-document token each
  int64_t text_bytes = 0;
  int64_t shards = 0;
  std::string fingerprint;
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
