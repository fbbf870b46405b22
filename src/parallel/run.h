// Run: what every module's forward and backward is given: where to compute, where to put results, which ranks to use.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "core/memory.h"
#include "core/stream.h"
#include "parallel/host_communicator.h"
#include "parallel/layout.h"
#include "parallel/pipeline.h"

namespace shiftron {

// One rank's end of a channel: a group of two, in which rank 0 sends and rank 1 receives. A communicator runs its
// operations in order: if two channels shared one, a receive that is posted early would block the send after it.
struct ChannelEnd {
  Channel channel;
  std::unique_ptr<Communicator> group;
};

// The communicators of one rank, one per axis of the layout.
struct Groups {
  Groups() = default;
  Groups(Groups&&) = default;
  Groups& operator=(Groups&&) = default;
  ~Groups();  // while an exception unwinds, gives them up

  ParallelLayout layout;
  Coordinates at;
  std::unique_ptr<Communicator> world;  // for few numbers
  std::unique_ptr<Communicator> tp, cp, dp, kv_replica, tied;
  std::vector<ChannelEnd> channels;  // to and from other stages

  // Between stages; one of them is this rank's.
  Communicator& channel(const Channel& channel) const;
  void abandon() const noexcept;  // all of them
  std::string under_way() const;  // as Communicator::under_way(), in all of them

 private:
  void give_up() const noexcept;
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (Communicator* group : {world.get(), tp.get(), cp.get(), dp.get(), kv_replica.get(), tied.get()}) {
      if (group != nullptr) visit(*group);
    }
    for (const ChannelEnd& end : channels) visit(*end.group);
  }
};
// All ranks of `world` call it; world.size() == layout.ranks(). `device`: of the streams that will use them.
Groups make_groups(HostCommunicator& world, const ParallelLayout& layout, int64_t kv_heads,
                   const Schedule& schedule = {}, DeviceKind device = DeviceKind::cpu);

// int32 [attending rows] each. The attending rows are the microbatch's, samples · sequence_length, unless documents
// share rows: then a forward without backward copies queries, keys and values into one longer sample that holds every
// document whole.
struct Documents {
  Tensor attention_start;  // first row that this row attends to
  Tensor shift_start;      // first row that this row's shift may read
  Tensor positions;        // in the RoPE table
  bool cut = true;         // false: rows attend to all earlier rows of their sample
  Tensor copied_from{};    // row of the microbatch that each attending row copies; undefined: the same rows
  Tensor kept_from{};      // [rows]: attending row whose result each row of the microbatch takes; undefined as above
};

// Weight gradients that Linear has queued, first in, first out, so that each parameter's are added in a fixed order.
// Ordinary schedules run each at once; zero-bubble ones run those of a microbatch together, later.
struct WeightGradient {
  int microbatch;
  Tensor d_y, x, gradient;  // valid until it is run; nobody writes d_y and x until then
};
struct WeightGradientQueue {
  bool deferred = false;
  std::deque<WeightGradient> waiting;
};

class BucketExchange;

struct Run {
  Stream& stream;
  Arena& activations;  // of this microbatch: what backward needs
  Arena& operands;     // of this microbatch: what its queued weight gradients need
  Arena& scratch;      // of this action
  const Groups& groups;
  bool training;     // false: forward only, nothing is kept for backward
  bool gather_rows;  // sequence parallelism: rows outside the products are split over tp (off in decoding)
  int64_t rows;      // of the microbatch
  int64_t sequence_length;
  Documents documents;
  double loss_scale;  // 1 / nominal number of targets of the global batch
  int microbatch;     // its number in the step
  WeightGradientQueue& weight_gradients;
  BucketExchange* exchange =
      nullptr;  // set if backward completes a step's gradients: it then calls complete() for each part

  // Rows of this rank: rows / tp if they are split.
  int64_t local_rows() const { return gather_rows ? rows / groups.layout.tp : rows; }
  // Rows of the shift and of attention.
  int64_t attending_rows() const { return documents.copied_from.defined() ? documents.copied_from.extent(0) : rows; }
};

}  // namespace shiftron
