// Joins datasets, and divides one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/dataset_writer.h"

namespace shiftron {

// Of both functions: documents keep their order and are never cut. The output is as build_dataset() makes it: complete
// or not there. Errors as there. `notify` is called with the result before the last trace of the work is removed.
struct RewrittenDatasets {
  bool was_there = false;  // a killed run with the same datasets and options had finished it
  std::vector<BuiltDataset> datasets{};
};
using NotifyRewritten = std::function<void(const RewrittenDatasets&)>;

struct DatasetMerge {
  std::vector<std::string> datasets;  // their documents follow each other in this order
  std::string output;
};
// Copies no tokens: the output has hard links to the shards, or, for those of another file system, names them by their
// relative paths. Throws Error(bad_input) if vocabularies, end tokens, tokenizers or packing differ, or if some
// datasets have targets and others have none.
RewrittenDatasets merge_datasets(const DatasetMerge& merge, const Progress::Output& output = {},
                                 const NotifyRewritten& notify = {});

struct DatasetSplit {
  std::string dataset{};
  std::string output{};   // gets the datasets output/train and output/validation
  int64_t documents = 0;  // of the validation part, if > 0
  double fraction = 0;    // otherwise: of all documents, rounded
  uint64_t seed = 0;      // of the choice
  int64_t shard_tokens = DatasetOutput{}.shard_tokens;
};
// Copies the documents. Memory: 56 bytes for each document of a shard.
RewrittenDatasets split_dataset(const DatasetSplit& split, const Progress::Output& output = {},
                                const NotifyRewritten& notify = {});

}  // namespace shiftron
