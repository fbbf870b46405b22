// BatchStaging: brings a microbatch's rows from the loader to its arena, through two slots of pinned memory and two on
// the device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "config/run_config.h"
#include "core/event.h"
#include "core/side_stream.h"
#include "model/transformer.h"

namespace shiftron {

// Host arrays of one microbatch, [micro_batch · sequence_length] each. If documents share rows (Documents in
// parallel/run.h), those marked so have [attending rows].
struct HostBatch {
  std::vector<int32_t> ids, targets;     // targets: −1 = not counted
  std::vector<uint8_t> document_starts;  // 1 where a document starts; [attending rows]
  std::vector<int32_t> copied_from;      // [attending rows], −1: zeros; empty if no rows are shared
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
  // Each microbatch is loaded `times` times: once by every chunk of the model. `attending_rows`: number of rows that
  // attend if documents, each of at most sequence_length tokens, share rows of the only sample; 0 = no rows are shared.
  BatchStaging(const RunConfig& config, Stream& stream, int times, int64_t attending_rows = 0);
  // Starts the upload of microbatch `index`, concurrent with the stream's work, and makes the stream copy it to
  // `arena`. Waits only for the upload before the last one. The first load reads the microbatch and adds to `attended`
  // the number of rows that its rows attend to, each counting itself. `apart`: documents see nothing of each other,
  // whatever the configuration says.
  DeviceBatch load(int index, const BatchReader& read, Arena& arena, int64_t& attended, bool apart = false);

 private:
  struct Slot {
    Tensor pinned, device;  // int32: ids, targets, attention_start, shift_start, positions[, copied_from, kept_from]
    Event uploaded, taken;  // upload from `pinned` is done; copy from `device` is done
  };
  // Rows of a microbatch that will be loaded again.
  struct Kept {
    std::vector<int32_t> rows;
    int times;
  };
  void fill(int index, const BatchReader& read, Slot& slot, int64_t& attended, bool apart);
  int64_t arrange(const Tensor& rows, bool apart) const;
  int64_t begin_of(int kind) const;  // of the kind's rows in a slot
  int64_t count_of(int kind) const;
  RunConfig config_;
  Stream& stream_;
  int64_t rows_, attending_rows_;  // the latter is 0 if no rows are shared
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
