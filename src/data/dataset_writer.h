// DatasetWriter: documents of tokens in, datasets out. Splits, shuffles, packs and writes shards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/progress.h"
#include "data/build_request.h"
#include "data/ordered_documents.h"
#include "data/shard.h"

namespace shiftron {

struct DatasetOutput {
  std::string output;              // directory: new, or empty
  double validation_fraction = 0;  // > 0: datasets in output/train and output/validation, chosen by is_validation()
  bool has_validation = false;     // the same two datasets, chosen by the caller
  bool deduplicate = false;        // of documents of equal content only the first is kept
  int64_t shard_tokens = int64_t{1} << 28;
  int64_t pack = 0;   // L > 0: no document straddles a window of L tokens; end tokens fill the rest of each window
  uint64_t seed = 0;  // of the documents' order
  int threads = 1;    // that make documents; the dataset does not depend on their number
  double save_seconds = 1;  // at least so many between two saves of a build that can be continued; 0 = all the time
};

// What the ids of a dataset mean.
struct TokenVocabulary {
  int64_t size = 0;
  int32_t end_of_document = 0;
  StoredTokenizer tokenizer{};
};
TokenVocabulary vocabulary_of(const Tokenizer& tokenizer);

// One document, without its end-of-document token, which the writer appends.
struct TokenDocument {
  std::vector<int32_t> ids;      // each in [0, size), and not end_of_document
  std::vector<int32_t> targets;  // what is predicted at each id: kNotCounted, or in [0, size). Empty = the next token.
                                 // All documents of a dataset give targets, or none does
  int32_t beginning = -1;        // id that the writer puts in front unless it is there; -1 = none
  int64_t text_bytes = 0;        // 0 without a tokenizer
  bool is_validation = false;
  Hash128 content = {};  // with DatasetOutput::deduplicate: equal for equal documents
  std::string where;     // for messages: "FILE:LINE", "document 7"
};

// Throws Error(bad_input), starting with `where`, unless each of a document's ids is as described in TokenDocument.
void refuse_foreign_ids(const std::vector<int32_t>& ids, const TokenVocabulary& vocabulary, const std::string& where);

struct BuiltDataset {
  std::string directory;
  int64_t documents = 0;
  int64_t tokens = 0;           // including end-of-document tokens
  int64_t counted_targets = 0;  // for data with targets; otherwise 0
  bool has_targets = false;
  int64_t text_bytes = 0;
  int64_t shards = 0;
  std::string fingerprint;
};

// For one thread, except where stated. Holds one bucket of documents in memory, the others in OUTPUT/.building. Throws
// Error(bad_input) for faults of documents and options, Error(crash) if it cannot write; then nothing of the output
// remains. A killed build's output remains; see BuildDirectory.
class DatasetWriter {
 public:
  // The output of a killed build of the same request is taken over.
  // source: where the documents come from, for people. input_bytes: of the documents, approximately; determines the
  // memory needed.
  // ordered_documents: 0 = documents are shuffled; otherwise they keep their order, and this is their number.
  DatasetWriter(const DatasetOutput& options, const TokenVocabulary& vocabulary, const BuildRequest& request,
                const std::string& source, uint64_t input_bytes, int64_t ordered_documents = 0);
  ~DatasetWriter();
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  // Whether a killed build of the same request had finished: then do not call add(); finish() returns its datasets.
  bool was_there() const;
  const std::string& note() const;  // of that build
  // What a killed build of the same request gave to save(): add() continues after what it had added then. Null if
  // there is none.
  const std::string* saved() const;
  bool has_cleared() const;  // see BuildDirectory
  // Makes all that was added durable, so that a build of the same request continues after it. `note`: for that build.
  // Before remove_duplicates().
  void save(const std::string& note);

  // Whether a document of this content belongs to the validation part. May be called on any thread.
  bool is_validation(const void* content, size_t bytes) const;
  // Checks a document, adds the beginning and the end token and, if there are targets, those of these tokens, which are
  // not counted. With options.pack every document gets targets. May be called on any thread.
  void close(TokenDocument& document) const;
  // Adds a closed document. Its place in the order depends on the number of documents added and left out before.
  void add(const TokenDocument& document);
  void leave_out();  // an empty document
  // With DatasetOutput::deduplicate, after the last add() and before finish(): removes all but the first of documents
  // of equal content. Returns how many were removed.
  int64_t remove_duplicates();
  // Instead of add(): writes the shards of each part at once, without a copy of the tokens in between. Packing needs
  // documents that has_ends(). `progressed` gets the number of tokens written so far. Memory: 40 bytes for each
  // document of a shard.
  void write_in_order(const std::vector<OrderedDocuments*>& parts,
                      const std::function<void(int64_t tokens)>& progressed);

  // Instead of add(), for one dataset: its shards exist, in work_directory() or elsewhere.
  void take_shards(const DatasetDescription& description);
  std::string work_directory() const;  // from which finish() moves files named as shards are

  struct Words {
    std::string nothing;          // the message if no document was added
    std::string too_few = "";     // further advice for a part without a document, after "change it"
    std::string nothing_in = "";  // with DatasetOutput::has_validation: after "none is in the validation part"
    std::string note = "";        // for a build of the same request
  };
  // Writes the datasets and moves them in place.
  std::vector<BuiltDataset> finish(const Words& words, const Progress::Output& output);
  // The last step: until then the output of a killed build can be taken over.
  void commit();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shiftron
