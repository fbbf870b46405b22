// Pipeline schedules as action lists: a pure function of (stages, microbatches), executed by the trainer.
#pragma once

#include <optional>
#include <vector>

#include "parallel/pipeline_kind.h"

namespace shiftron {

enum class ActionKind { recv_forward, forward, send_forward, recv_backward, backward, send_backward, weight_gradients };

struct Action {
  ActionKind kind;
  int microbatch;
  int chunk = 0;  // of the stage
  int peer = -1;  // of a message: the stage at its other end
  bool operator==(const Action&) const = default;
};

// How a step's work is ordered. Unless deferred, weight gradients are part of their backward; deferred, they are a
// separate action, `delay` backwards later. zb-h1 and zb-v always defer, and determine themselves by how much.
struct Schedule {
  PipelineKind kind = PipelineKind::one_forward_one_backward;
  int chunks = 1;  // of the model on each stage: interleaved has two or more; zb-v two, also if unset; the others one
  bool deferred = false;
  int delay = 0;
};
int chunks_of(const Schedule& schedule);
bool defers_weight_gradients(const Schedule& schedule);

// The model is cut into stages × chunks consecutive virtual stages. Between two neighbours on one stage (zb-v's turning
// point; a single stage) there is no message: the executor hands the tensor over.
struct ChunkPlace {
  int stage, chunk;
};
int virtual_stage(const Schedule& schedule, int stages, int stage, int chunk);
ChunkPlace chunk_place(const Schedule& schedule, int stages, int virtual_stage);
// The chunk that passes its rows to a chunk (step −1) or gets rows from it (step 1); none beyond the model's ends.
std::optional<ChunkPlace> neighbour(const Schedule& schedule, int stages, const ChunkPlace& of, int step);

// Messages from one stage to another, of forwards or of backwards.
struct Channel {
  int from, to;
  bool forward;
  bool operator==(const Channel&) const = default;
};
// All channels of a schedule, in the same order on all ranks.
std::vector<Channel> channels_of(const Schedule& schedule, int stages);

// What one stage does in a step, in order; receives come directly before, sends directly after their computation.
// Sends never block; a recv waits for its peer. The messages of a channel are received in the order in which they are
// sent. Weight gradients are computed in the order of their backwards.
std::vector<Action> make_schedule(const Schedule& schedule, int stages, int stage, int microbatches);
// Forward only, for evaluation.
std::vector<Action> make_forward_schedule(const Schedule& schedule, int stages, int stage, int microbatches);

}  // namespace shiftron
