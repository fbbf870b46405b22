// Datasets made of a few documents.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/fixture.h"
#include "scratch.h"

namespace shiftron::testing {

// A dataset of these documents, of which an empty one is its end alone, as no text makes it.
inline std::string dataset_of(const Scratch& scratch, const std::string& name,
                              const std::vector<std::string>& documents) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  const std::string directory = scratch / name;
  std::filesystem::create_directory(directory);
  std::vector<std::vector<int32_t>> rows;
  DatasetDescription description{
      {tokenizer.vocab_size(), tokenizer.end_of_document(), tokenizer.hash(), "test"}, 0, {}};
  int64_t tokens = 0;
  for (const std::string& document : documents) {
    rows.push_back(tokenizer.encode(document));
    rows.back().push_back(tokenizer.end_of_document());
    tokens += static_cast<int64_t>(rows.back().size());
    description.text_bytes += static_cast<int64_t>(document.size());
  }
  ShardWriter writer(directory + "/shard-00000.h5", description.header, tokens, static_cast<int64_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    writer.append(rows[i].data(), static_cast<int64_t>(rows[i].size()), static_cast<int64_t>(documents[i].size()));
  }
  description.shards = {writer.finish()};
  scratch.write(name + "/tokenizer.model", example_model());
  scratch.write(name + "/dataset.json", description.to_text());
  return directory;
}

}  // namespace shiftron::testing
