// When each action of a schedule would run, given costs: a model of streams and messages, which also shows hangs.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline.h"

namespace shiftron {

// Of one virtual stage, in any unit. A backward that includes its weight gradients takes both of its parts; the head,
// which computes them in forward, counts them there.
struct ChunkCost {
  double forward = 1, backward_input = 1, backward_weight = 1;
};
struct ScheduleCosts {
  std::vector<ChunkCost> virtual_stages{};  // empty: all have the default costs
  double message = 0;                       // from the time when both ends are ready
};

struct TimedAction {
  Action action;
  double start = 0, end = 0;
  double duration() const { return end - start; }
};
struct ScheduleTimes {
  std::vector<std::vector<TimedAction>> stages;  // as listed
  double total = 0;                              // until the last stage has finished
  double bubble = 0;  // the longest time from a stage's first work to its last ÷ the most work of a stage − 1
  double idle = 0;    // part of `total` in which stages do nothing, on average
  std::string hang;   // what the stages wait for forever; "" if all is done
};

// Which messages of a stage run one after the other.
enum class MessageQueues {
  per_channel,   // those to one other stage, or from it, of one direction of the model
  per_direction  // all that belong to forwards; all that belong to backwards
};

// Each stage computes in the order of its list. A send waits in its queue until it is received, without delaying the
// computation; each receive is posted, into separate memory, when the one before it on its channel is taken. A
// microbatch waits for everything that uses its arena before it (assign_arenas), also for sends. In addition to the
// posted one, kGradientsInUse received gradients of a channel may be in use.
ScheduleTimes simulate(const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs = {});
// The same for given lists, one per stage, complete or not.
ScheduleTimes simulate(const Schedule& schedule, const std::vector<std::vector<Action>>& lists, int microbatches,
                       const ScheduleCosts& costs = {}, MessageQueues queues = MessageQueues::per_channel);

// For messages: "send_forward 3 of chunk 1".
std::string text_of(const Action& action);

}  // namespace shiftron
