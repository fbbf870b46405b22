// Documents of a dataset: how long they are, and some of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/progress.h"
#include "data/dataset.h"

namespace shiftron {

struct DocumentLengths {
  int64_t documents = 0;
  int64_t shortest = 0, longest = 0;  // tokens, with the end token
  std::array<int64_t, 63> counts{};   // [i]: documents of 2^i to 2^(i+1) − 1 tokens
};

// Reads /doc_start of every shard: 8 bytes for each document, those of one shard in memory at a time. In packed data
// the tokens that fill a window count with the document before. Throws Error(bad_input) for shards that cannot be read.
DocumentLengths document_lengths(const Dataset& dataset, const Progress::Output& output = {});

struct DocumentSample {
  int64_t number = 0;                // in the dataset, from 0
  int64_t length = 0;                // tokens, with the end token
  std::vector<int32_t> tokens = {};  // the first ones, without the end token
};

// `count` documents at equal distances, or all if there are fewer; up to `most_tokens` tokens of each. Errors as above.
std::vector<DocumentSample> sample_documents(Dataset& dataset, int64_t count, int64_t most_tokens);

}  // namespace shiftron
