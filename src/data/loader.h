// Training samples: windows of tokens over blended sources, determined by the sample number alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/shard.h"

namespace shiftron {

struct DataSource {
  std::string directory;  // a dataset made by `data build`
  double weight = 0;      // share of the samples, relative to the others; 0 = not given
};

// Only reads; one object per thread. Windows of sequence_length tokens over a source's concatenated documents. Targets
// are those of the dataset, or else the next tokens. Damaged or unreadable data: Error(bad_input) with shard and place.
class Loader {
 public:
  // Either all sources have a weight or none; without weights every source counts by its windows. shuffle = false:
  // windows in order, source after source, over and over (evaluation). Throws Error(bad_input): no dataset, sources
  // that differ in tokenizer or vocabulary, packed data of another window length, a source shorter than one window or
  // with less than one sample in kBlendBlock (order.h).
  Loader(const std::vector<DataSource>& sources, int64_t sequence_length, uint64_t seed, bool document_reset,
         bool shuffle);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  int64_t vocab_size() const;
  int32_t end_of_document() const;
  std::string fingerprint() const;  // of everything that decides which tokens sample i holds, except seed and length
  // The same, including weights that the order does not use: checkpoints of older versions store it.
  std::string fingerprint_with_weights() const;
  std::vector<std::string> fingerprints_of_sources() const;  // of each source's tokens alone
  std::string tokenizer_hash() const;                        // empty = the data has no tokenizer
  const StoredTokenizer& tokenizer() const;
  int64_t windows() const;  // of one epoch, over all sources
  const std::vector<int64_t>& windows_of_sources() const;
  std::vector<double> passes(int64_t samples) const;  // how often so many samples go through each source
  int64_t dropped_tokens() const;                     // after the last whole window of each source
  std::vector<int64_t> dropped_tokens_of_sources() const;
  int64_t tokens() const;  // over all sources

  // Opens every shard of every source, so that a run starts only if all exist. Errors as in read().
  void require_shards() const;

  // Samples [first_sample, first_sample + count), sequence_length entries each, one after another:
  // ids; targets, kNotCounted where nothing is predicted: those of the dataset if it has them, whatever document_reset
  // says; otherwise the next token, but with document_reset none at an end of document; document_start = 1 where a
  // document starts.
  void read(int64_t first_sample, int64_t count, int32_t* ids, int32_t* targets, uint8_t* document_start);
  // From now on every read of a shard goes through `around`.
  void read_by(const AroundRead& around);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shiftron
