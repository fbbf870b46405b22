// Documents of token files, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset_writer.h"
#include "data/token_files/token_file.h"
#include "data/token_files/windowed_file.h"

namespace shiftron {

// What was met on the way.
struct DocumentCounts {
  int64_t empty = 0;  // documents without a token of their own, which are left out
  int64_t split = 0;  // documents of an index with an end token inside, each of which ends a document
  int64_t open = 0;   // documents at whose end the source has no end token
};

// A document ends where the file's index says so, at an end token, and at the end of the file. For one thread.
class TokenDocuments : public OrderedDocuments {
 public:
  // bytes_of: of the text of each id; empty = not known. `files` must outlive this.
  TokenDocuments(const std::vector<TokenFile>& files, const TokenVocabulary& vocabulary,
                 std::vector<int32_t> bytes_of = {});

  bool has_targets() const override { return has_targets_; }
  // Throws Error(bad_input), with file and position, for a number that is no id of the vocabulary.
  std::optional<Document> next() override;
  // The target of each token is the next one of its document, or its end token, if the mask says that it is learned.
  // An end token that the source lacks is learned if the token before it is.
  int64_t read(const Document& document, int64_t first, int64_t count, const Piece& piece) override;
  // A document with its targets, for DatasetWriter::add().
  TokenDocument whole(const Document& document);
  void restart();  // next() is the first document again

  const DocumentCounts& counts() const { return counts_; }  // so far
  uint64_t passed() const { return passed_; }               // bytes of tokens so far

 private:
  // A file that is being read: ahead by next(), or by read().
  struct Opened {
    Opened(const TokenFile& file, bool with_ends);
    WindowedFile tokens;
    std::unique_ptr<DocumentEnds> ends;   // null: no index
    std::unique_ptr<WindowedFile> masks;  // null: no mask
  };
  bool go_to_next_end();
  int64_t ids_up_to(uint64_t end);
  bool is_learned(uint64_t token);
  void mask_targets(const Document& document, int64_t first, int64_t count, const Piece& piece);
  Opened& opened_for_reading(size_t file);

  const std::vector<TokenFile>& files_;
  TokenVocabulary vocabulary_;
  std::vector<int32_t> bytes_of_;
  bool has_targets_ = false;
  // Of next():
  std::unique_ptr<Opened> ahead_;
  size_t file_ = 0;
  uint64_t at_ = 0, end_ = 0;  // tokens: where the next document begins, where the index ends the current one
  bool inside_ = false;        // an end token has already ended a part of the index's document
  uint64_t passed_ = 0;
  DocumentCounts counts_;
  // Of read():
  std::unique_ptr<Opened> reading_;
  size_t reading_file_ = SIZE_MAX;
};

}  // namespace shiftron
