// Text from a prompt: prefill, then one token at a time, with carried raw rows beside the cache.
#pragma once

#include <functional>
#include <vector>

#include "core/check.h"
#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "model/transformer.h"
#include "parallel/host_communicator.h"
#include "train/engine.h"

namespace shiftron {

// A model that decodes; every rank of it calls the same. A checkpoint does on all ranks of `world` by tensor
// parallelism (tp = ranks).
class Decoder {
 public:
  // Room for `capacity` tokens; at most `chunk` of them are fed at once.
  Decoder(const CheckpointModel& model, HostCommunicator& world, const HostShare& share, int64_t capacity,
          int64_t chunk);
  // The same with masters that `fill` sets.
  Decoder(const RunConfig& config, const std::function<void(ParameterSet&)>& fill, HostCommunicator& world,
          const HostShare& share, int64_t capacity, int64_t chunk);
  // The weights as they are in `engine`, which goes after it, on the ranks of its tp and pp: nothing of its training
  // changes. Room for samples of config.train.sequence_length tokens at most. `stages`: the ranks of this one's pp, by
  // their stage; null where there is one stage.
  Decoder(const RunConfig& config, Engine& engine, ControlPlane* stages, int64_t capacity, int64_t chunk);
  ~Decoder();
  // Adds to `planned` what that takes beside an engine, on such a rank.
  static void plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, int64_t capacity,
                        int64_t chunk, Ledger& planned);
  void weights_changed();  // in the engine; to be called before the first feed too
  // Logits over the whole vocabulary behind each of `ids`, [ids][vocab], the same on every rank.
  std::vector<std::vector<double>> feed(const std::vector<int32_t>& ids);
  // The same behind the last of them alone, [vocab].
  std::vector<double> feed_last(const std::vector<int32_t>& ids);
  void restart();  // forgets everything that was fed
  // shift.reset=always: the shift starts anew behind a token that ends a document, which begin_document() tells.
  bool shift_stops_at_documents() const;
  void begin_document();  // with the next token; attention goes on
  void start_profile();  // from here on the ledger counts and times every kernel
  const Ledger& ledger() const;

 private:
  struct Own;  // a model that it holds
  struct Implementation;
  std::unique_ptr<Own> own_;
  std::unique_ptr<Implementation> implementation_;
};

// Logits that hold no finite number: exit code bad_input, as of other steps that cannot be used.
class NonFiniteLogits : public Error {
 public:
  explicit NonFiniteLogits(int64_t tokens);  // that were read
};

struct GenerateOptions {
  int64_t tokens = 64;
  double temperature = 0;  // 0 = greedy
  uint64_t seed = 0;
  int64_t chunk = 256;     // tokens of the prompt fed at once
  // With shift.reset=always the shift starts anew behind the end of a document, as in training; else it mixes across.
  bool parts_documents = true;
  std::function<bool(int32_t token)> ends_with{};  // whether nothing is wanted behind this token
};

// Tokens that follow `prompt` (not empty) in a decoder that was fed nothing: ids below `vocab`, at most options.tokens,
// ends before `end`; `show` gets each as it comes. Throws NonFiniteLogits, on every rank alike.
std::vector<int32_t> continue_tokens(Decoder& decoder, const std::vector<int32_t>& prompt,
                                     const GenerateOptions& options, int64_t vocab, int32_t end,
                                     const std::function<void(int32_t)>& show);

// What to feed so that `ids` begin a document as in training: they alone, or after `end`, which ends a document.
std::vector<int32_t> as_beginning_of_document(std::vector<int32_t> ids, const RunConfig& config, int32_t end);

// The prompt's continuation; `show` gets each piece of text as it comes. Ends at an end-of-document token. Throws
// NonFiniteLogits.
std::vector<int32_t> generate(const CheckpointModel& model, const std::string& prompt, const GenerateOptions& options,
                              HostCommunicator& world, const HostShare& share,
                              const std::function<void(const std::string&)>& show);

}  // namespace shiftron
