// DatasetWriter: documents of tokens in, datasets out. Splits, shuffles, packs and writes shards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/shard.h"

namespace shiftron {

struct DatasetOutput {
  std::string output;              // directory: new, or empty
  double validation_fraction = 0;  // > 0: datasets in output/train and output/validation
  int64_t shard_tokens = int64_t{1} << 28;
  int64_t pack = 0;   // L > 0: no document straddles a window of L tokens; end tokens fill the rest of each window
  uint64_t seed = 0;  // of the documents' order
  int threads = 1;    // that make documents; the dataset does not depend on it
};

// What the ids of a dataset mean.
struct TokenVocabulary {
  int64_t size = 0;
  int32_t end_of_document = 0;
  std::string tokenizer_model;  // bytes of tokenizer.model; empty = none
};

// One document, without its end-of-document token: the writer appends it.
struct TokenDocument {
  std::vector<int32_t> ids;      // each in [0, size), and not end_of_document
  std::vector<int32_t> targets;  // what is predicted at each id: kNotCounted, or in [0, size). Empty = the next token.
                                 // All documents of a dataset give targets, or none does
  int64_t text_bytes = 0;        // 0 without a tokenizer
  bool is_validation = false;
  std::string where;  // stands in messages: "FILE:LINE", "document 7"
};

// Throws Error(bad_input), which begins with `where`, unless each of a document's ids is what TokenDocument states.
void refuse_foreign_ids(const std::vector<int32_t>& ids, const TokenVocabulary& vocabulary, const std::string& where);

struct BuiltDataset {
  std::string directory;
  int64_t documents = 0;
  int64_t tokens = 0;           // with end-of-document tokens
  int64_t counted_targets = 0;  // of data with targets; else 0
  bool has_targets = false;
  int64_t text_bytes = 0;
  int64_t shards = 0;
  std::string fingerprint;
};

// For one thread, except where stated. Holds a bucket of documents in memory, the others in OUTPUT/.building.
// Throws Error(bad_input) for faults of documents and options, Error(crash) where it cannot write; then nothing of the
// output remains.
class DatasetWriter {
 public:
  // request: differs where another dataset would be made; a killed build of the same request is taken over.
  // source: where the documents come from, for people. input_bytes: of the documents, about; decides the memory needed.
  // ordered_documents: 0 = documents are shuffled; else they keep their order, and are so many.
  DatasetWriter(const DatasetOutput& options, const TokenVocabulary& vocabulary, const std::string& request,
                const std::string& source, uint64_t input_bytes, int64_t ordered_documents = 0);
  ~DatasetWriter();
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  // A killed build of the same request had made everything: add() is not called; finish() returns it.
  bool was_there() const;
  const std::string& note() const;  // of that build

  // Whether a document of this content belongs to the validation part. On any thread.
  bool is_validation(const void* content, size_t bytes) const;
  // Checks a document, appends the end token and, where there are targets, its own, which is not counted. With
  // options.pack every document has targets. On any thread.
  void close(TokenDocument& document) const;
  // A closed document. The number of those added and left out before decides its place in the order.
  void add(const TokenDocument& document);
  void leave_out();  // an empty document

  struct Words {
    std::string nothing;       // the message where no document was added
    std::string too_few = "";  // what else may help where a part has none, after "change --validation-fraction"
    std::string note = "";     // for a build of the same request
  };
  // Writes the datasets and moves them in place.
  std::vector<BuiltDataset> finish(const Words& words, const Progress::Output& output);
  // The last act: after it a killed build cannot be taken over any more.
  void commit();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shiftron
