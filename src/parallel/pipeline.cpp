// The schedules, as rules for the order of forwards and backwards; messages and numbers follow from the order.
//   1f1b         Narayanan et al. 2019, "PipeDream"; flushed: Narayanan et al. 2021, "Efficient Large-Scale Language
//                Model Training on GPU Clusters Using Megatron-LM"
//   gpipe        Huang et al. 2019
//   interleaved  Narayanan et al. 2021
//   zb-h1        Qi et al. 2023, "Zero Bubble Pipeline Parallelism"
//   zb-v         Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"
#include "parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/check.h"

namespace shiftron {
namespace {

// Writes one stage's list. Each call takes the next microbatch of the chunk and does nothing after the last one. So a
// rule may assume more microbatches than there are: leaving some out of all stages' lists delays no other one.
class Builder {
 public:
  Builder(const Schedule& schedule, int stages, int stage, int microbatches) : microbatches_(microbatches) {
    CHECK(stage >= 0 && stage < stages && microbatches > 0, "stage ", stage, " of ", stages, ", ", microbatches,
          " microbatches");
    for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
      const auto peer = [&](int step) {
        const auto other = neighbour(schedule, stages, {stage, chunk}, step);
        return other && other->stage != stage ? other->stage : -1;
      };
      chunks_.push_back({.before = peer(-1), .after = peer(1)});
    }
  }

  void forward(int chunk) {
    Chunk& own = chunks_[static_cast<size_t>(chunk)];
    if (own.forwards == microbatches_) return;
    const int microbatch = own.forwards++;
    if (own.before >= 0) actions.push_back({ActionKind::recv_forward, microbatch, chunk, own.before});
    actions.push_back({ActionKind::forward, microbatch, chunk});
    if (own.after >= 0) actions.push_back({ActionKind::send_forward, microbatch, chunk, own.after});
  }

  void backward(int chunk) {
    Chunk& own = chunks_[static_cast<size_t>(chunk)];
    if (own.backwards == microbatches_) return;
    const int microbatch = own.backwards++;
    if (own.after >= 0) actions.push_back({ActionKind::recv_backward, microbatch, chunk, own.after});
    actions.push_back({ActionKind::backward, microbatch, chunk});
    if (own.before >= 0) actions.push_back({ActionKind::send_backward, microbatch, chunk, own.before});
    waiting_.push_back({ActionKind::weight_gradients, microbatch, chunk});
  }

  // Of all backwards so far except the last `but`.
  void weight_gradients(size_t but) {
    while (made_ + but < waiting_.size()) actions.push_back(waiting_[made_++]);
  }

  std::vector<Action> actions;

 private:
  struct Chunk {
    int before, after;  // stages that it exchanges messages with
    int forwards = 0, backwards = 0;
  };
  int microbatches_;
  std::vector<Chunk> chunks_;
  std::vector<Action> waiting_;  // weight gradients, in the order of their backwards
  size_t made_ = 0;              // number of them already in `actions`
};

// A group of microbatches goes through the first chunk, then through the next one; backward in the reverse order. A
// smaller last group counts as a full one.
struct Turns {
  int chunks, group, units;
  Turns(const Schedule& schedule, int stages, int microbatches)
      : chunks(chunks_of(schedule)),
        group(chunks == 1 ? 1 : stages),
        units((microbatches + group - 1) / group * group * chunks) {}
  int chunk(int unit) const { return unit / group % chunks; }
};

// `ahead` forwards, then alternately a forward and a backward, then the remaining backwards.
void alternate(Builder& builder, const Turns& turns, int ahead, bool deferred, int delay) {
  for (int unit = 0; unit < turns.units + ahead; ++unit) {
    if (unit < turns.units) builder.forward(turns.chunk(unit));
    if (unit < ahead) continue;
    builder.backward(turns.chunks - 1 - turns.chunk(unit - ahead));
    if (deferred) builder.weight_gradients(static_cast<size_t>(delay));
  }
  if (deferred) builder.weight_gradients(0);
}

// The stages form a V: chunk 0 goes down, chunk 1 up again, so that the first stage is also the last. Weight gradients
// directly follow their backward as long as there are forwards; after that they fill idle time.
void zero_bubble_v(Builder& builder, int stages, int stage, int microbatches) {
  const int counted = std::max(microbatches, 2 * stages - 1);
  const auto whole_backward = [&](int chunk) {
    builder.backward(chunk);
    builder.weight_gradients(0);
  };
  for (int i = 0; i < 2 * (stages - stage) - 1; ++i) builder.forward(0);
  for (int i = 0; i < stage; ++i) {
    builder.forward(1);
    builder.forward(0);
  }
  for (int i = stage; i < stages; ++i) {
    builder.forward(1);
    whole_backward(1);
  }
  for (int i = stages; i < counted; ++i) {
    builder.forward(0);
    whole_backward(0);
    builder.forward(1);
    whole_backward(1);
  }
  for (int i = 0; i < stage; ++i) {
    builder.backward(0);
    builder.backward(1);
  }
  for (int i = stage; i < stages; ++i) {
    builder.backward(0);
    builder.weight_gradients(static_cast<size_t>(2 * stage));
  }
  builder.weight_gradients(0);
}

}  // namespace

int chunks_of(const Schedule& schedule) {
  const PipelineKind kind = schedule.kind;
  const int chunks = kind == PipelineKind::zb_v && schedule.chunks == 1 ? 2 : schedule.chunks;
  const bool fits = kind == PipelineKind::interleaved ? chunks >= 2 : chunks == (kind == PipelineKind::zb_v ? 2 : 1);
  CHECK(fits, "this kind of pipeline cannot have ", chunks, " chunks");
  return chunks;
}

bool defers_weight_gradients(const Schedule& schedule) {
  return schedule.deferred || schedule.kind == PipelineKind::zb_h1 || schedule.kind == PipelineKind::zb_v;
}

int virtual_stage(const Schedule& schedule, int stages, int stage, int chunk) {
  if (schedule.kind == PipelineKind::zb_v && chunk == 1) return 2 * stages - 1 - stage;
  return chunk * stages + stage;
}

ChunkPlace chunk_place(const Schedule& schedule, int stages, int virtual_stage) {
  const int chunk = virtual_stage / stages;
  if (schedule.kind == PipelineKind::zb_v && chunk == 1) return {2 * stages - 1 - virtual_stage, chunk};
  return {virtual_stage % stages, chunk};
}

std::optional<ChunkPlace> neighbour(const Schedule& schedule, int stages, const ChunkPlace& of, int step) {
  const int other = virtual_stage(schedule, stages, of.stage, of.chunk) + step;
  if (other < 0 || other >= stages * chunks_of(schedule)) return {};
  return chunk_place(schedule, stages, other);
}

std::vector<Channel> channels_of(const Schedule& schedule, int stages) {
  std::vector<Channel> channels;
  std::set<std::array<int, 3>> known;  // a plan may have thousands of stages
  const auto add = [&](const Channel& channel) {
    if (known.insert({channel.from, channel.to, channel.forward ? 1 : 0}).second) channels.push_back(channel);
  };
  for (int place = 1; place < stages * chunks_of(schedule); ++place) {
    const int before = chunk_place(schedule, stages, place - 1).stage,
              after = chunk_place(schedule, stages, place).stage;
    if (before == after) continue;
    add({before, after, true});
    add({after, before, false});
  }
  return channels;
}

std::vector<Action> make_schedule(const Schedule& schedule, int stages, int stage, int microbatches) {
  Builder builder(schedule, stages, stage, microbatches);
  const Turns turns(schedule, stages, microbatches);
  const bool deferred = defers_weight_gradients(schedule);
  const int below = stages - 1 - stage;  // stages that follow
  switch (schedule.kind) {
    case PipelineKind::one_forward_one_backward:
      alternate(builder, turns, below, deferred, schedule.delay);
      break;
    case PipelineKind::gpipe:
      alternate(builder, turns, microbatches, deferred, schedule.delay);
      break;
    case PipelineKind::interleaved:
      alternate(builder, turns, std::min(turns.units, 2 * below + (turns.chunks - 1) * stages), deferred,
                schedule.delay);
      break;
    case PipelineKind::zb_h1:  // late stages defer as much as early ones have in flight: they send gradients sooner
      alternate(builder, turns, below, deferred, stage);
      break;
    case PipelineKind::zb_v:
      zero_bubble_v(builder, stages, stage, microbatches);
      break;
  }
  return builder.actions;
}

std::vector<Action> make_forward_schedule(const Schedule& schedule, int stages, int stage, int microbatches) {
  Builder builder(schedule, stages, stage, microbatches);
  if (schedule.kind == PipelineKind::zb_v) {
    const int ahead = 2 * (stages - stage) - 1;
    for (int i = 0; i < microbatches + ahead; ++i) {
      if (i >= ahead) builder.forward(1);
      builder.forward(0);
    }
    return builder.actions;
  }
  const Turns turns(schedule, stages, microbatches);
  for (int unit = 0; unit < turns.units; ++unit) builder.forward(turns.chunk(unit));
  return builder.actions;
}

}  // namespace shiftron
