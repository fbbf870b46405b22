// Run: what every module's forward and backward is given: where to compute, where to put results, whom to talk to.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/memory.h"
#include "core/stream.h"
#include "parallel/communicator.h"
#include "parallel/layout.h"

namespace shiftron {

// The communicators of one rank, one per axis of the layout.
struct Groups {
  ParallelLayout layout;
  Coordinates at;
  std::unique_ptr<Communicator> tp, cp, dp, pp, kv_replica, tied;
  Communicator* world = nullptr;  // not owned
};
// All ranks of `world` call it; world.size() == layout.ranks().
Groups make_groups(Communicator& world, const ParallelLayout& layout, int64_t kv_heads);

// Rows of one microbatch: int32 [rows] each; rows = samples · sequence_length.
struct Documents {
  Tensor attention_start;  // first row that this row attends to
  Tensor shift_start;      // first row that this row's shift may read
  Tensor positions;        // in the RoPE table
};

// Weight gradients that Linear has queued; ordinary schedules run each at once, zero-bubble ones later.
struct WeightGradientQueue {
  bool deferred = false;
  std::vector<std::function<void()>> waiting;
  void drain();
};

struct Run {
  Stream& stream;
  Arena& activations;  // of this microbatch: what backward needs
  Arena& scratch;      // of this action
  const Groups& groups;
  bool training;       // false: forward alone, nothing is kept for backward
  bool gather_rows;    // sequence parallelism: rows outside of the products are split over tp (off in decoding)
  int64_t rows;        // of the microbatch
  int64_t sequence_length;
  Documents documents;
  double loss_scale;   // 1 / nominal number of targets of the global batch
  WeightGradientQueue& weight_gradients;

  // Rows of this rank where they are split: rows / tp.
  int64_t local_rows() const { return gather_rows ? rows / groups.layout.tp : rows; }
};

}  // namespace shiftron
