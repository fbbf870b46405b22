// BatchStaging: the way of a microbatch's rows from the loader to its arena, through two slots of pinned memory and two
// of the device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/event.h"
#include "core/side_stream.h"
#include "model/transformer.h"
#include "train/run_config.h"

namespace shiftron {

// Host arrays of one microbatch: [micro_batch · sequence_length] each, but where documents share rows (Documents in
// parallel/run.h) [attending rows] of those that say so.
struct HostBatch {
  std::vector<int32_t> ids, targets;     // targets: −1 = not counted
  std::vector<uint8_t> document_starts;  // 1 where a document starts; [attending rows]
  std::vector<int32_t> copied_from;      // [attending rows], −1: zeros; empty where no rows are shared
  std::vector<int32_t> kept_from;        // −1: zeros; empty as above
};
// Fills microbatch `index` of this rank.
using BatchReader = std::function<void(int index, HostBatch& batch)>;

// Rows of a microbatch on the device.
struct DeviceBatch {
  Batch batch;
  Documents documents;
};

class BatchStaging {
 public:
  // Each microbatch is loaded `times` times: by every chunk of the model once. `attending_rows`: of documents that
  // share rows of the one sample, each of sequence_length tokens at most; 0: none do.
  BatchStaging(const RunConfig& config, Stream& stream, int times, int64_t attending_rows = 0);
  // Starts the upload of microbatch `index`, beside what the stream computes, and has the stream take it into `arena`.
  // Waits only for the upload before the last one. The first time the microbatch is read, and `attended` += how many
  // rows, itself included, its rows attend to. `apart`: documents see nothing of each other, whatever the configuration
  // says.
  DeviceBatch load(int index, const BatchReader& read, Arena& arena, int64_t& attended, bool apart = false);

 private:
  struct Slot {
    Tensor pinned, device;  // int32: ids, targets, attention_start, shift_start, positions[, copied_from, kept_from]
    Event uploaded, taken;  // from the one, from the other
  };
  // Rows of a microbatch that will be loaded again.
  struct Kept {
    std::vector<int32_t> rows;
    int times;
  };
  void fill(int index, const BatchReader& read, Slot& slot, int64_t& attended, bool apart);
  int64_t arrange(const Tensor& rows, bool apart) const;
  int64_t begin_of(int kind) const;  // in a slot
  int64_t count_of(int kind) const;
  RunConfig config_;
  Stream& stream_;
  int64_t rows_, attending_rows_;  // the latter 0 where no rows are shared
  int times_;
  HostBatch host_;
  std::map<int, Kept> kept_;
  Buffer pinned_, device_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
  SideStream uploads_;
};

// For each row the first row it attends to, the first its shift may read, and its position; rows are counted over the
// whole microbatch. Arrays of samples · sequence_length.
void find_documents(const std::vector<uint8_t>& document_starts, int64_t sequence_length, bool document_reset,
                    ShiftReset shift_reset, int32_t* attention_start, int32_t* shift_start, int32_t* positions);

}  // namespace shiftron
