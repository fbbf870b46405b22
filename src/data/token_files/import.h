// Makes a dataset of tokens that other programs wrote.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/dataset_writer.h"
#include "data/token_files/token_documents.h"
#include "data/token_files/token_file.h"

namespace shiftron {

struct TokenImport : DatasetOutput {  // `threads` is ignored
  std::vector<std::string> inputs;
  std::string format;                                 // of all inputs; empty = as recognised
  std::optional<TokenElement> element;                // of files that do not state it
  std::vector<std::string> masks;                     // .npy; one for each input, or none
  std::string tokenizer;                              // path of its file; empty = none, then `vocabulary` is used
  std::optional<StoredTokenizer> stored_tokenizer{};  // what a dataset or a checkpoint at `tokenizer` holds
  TokenVocabulary vocabulary;
  bool shuffle = false;  // documents, by `seed`; otherwise they keep their order
};

struct TokenImportResult {
  bool was_there = false;  // a killed import of the same files and options had finished it
  std::vector<BuiltDataset> datasets;
  std::vector<TokenFile> files;
  DocumentCounts counts;
};

// Equal inputs and options give equal bytes. Memory does not grow with the input, except by 56 bytes for each document
// of a shard. With shuffling, packing or validation: as build_dataset(), and each document is held whole.
// Throws Error(bad_input) for faults of the input, Error(crash) if it cannot write; then nothing of the output remains.
// `output` is where progress goes; `notify` is called with the result before the last trace of the import is removed.
TokenImportResult import_tokens(const TokenImport& options, const Progress::Output& output = {},
                                const std::function<void(const TokenImportResult&)>& notify = {});

}  // namespace shiftron
