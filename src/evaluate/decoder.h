// Decoding: prefill, then one token at a time. In addition to the cache, a decoder carries the raw rows that the shift
// needs.
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

// A model that decodes. All its ranks make the same calls. A checkpoint is decoded on all ranks of `world` by tensor
// parallelism (tp = ranks).
class Decoder {
 public:
  // Has room for `capacity` tokens and is fed at most `chunk` at once.
  Decoder(const CheckpointModel& model, HostCommunicator& world, const HostShare& share, int64_t capacity,
          int64_t chunk);
  // The same, with masters set by `fill`.
  Decoder(const RunConfig& config, const std::function<void(ParameterSet&)>& fill, HostCommunicator& world,
          const HostShare& share, int64_t capacity, int64_t chunk);
  // Uses the weights in `engine`, which must outlive it, on the engine's tp and pp ranks. Training is not changed.
  // Capacity is at most config.train.sequence_length tokens. `stages`: this rank's pp ranks, by stage; null if there is
  // one stage.
  Decoder(const RunConfig& config, Engine& engine, ControlPlane* stages, int64_t capacity, int64_t chunk);
  ~Decoder();
  // Adds to `planned` the memory that this decoder needs in addition to an engine, on such a rank.
  static void plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, int64_t capacity,
                        int64_t chunk, Ledger& planned);
  void weights_changed();  // in the engine; also to be called before the first feed
  // Logits over the whole vocabulary after each of `ids`, [ids][vocab], the same on every rank.
  std::vector<std::vector<double>> feed(const std::vector<int32_t>& ids);
  // The same after the last id only, [vocab].
  std::vector<double> feed_last(const std::vector<int32_t>& ids);
  void restart();  // forgets everything that was fed
  // True for shift.reset=always: the shift starts over after an end-of-document token. The caller reports that by
  // begin_document().
  bool shift_stops_at_documents() const;
  void begin_document();  // at the next token; attention continues across it
  void start_profile();  // from now on the ledger counts and times every kernel
  const Ledger& ledger() const;

 private:
  struct Own;  // a model that it holds
  struct Implementation;
  std::unique_ptr<Own> own_;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shiftron
