// A queue runs only its head, so the times do not depend on the order in which the queues are visited.
#include "parallel/schedule_times.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "parallel/stage_memory.h"

namespace shiftron {
namespace {

bool is_forward(ActionKind kind) {
  return kind == ActionKind::recv_forward || kind == ActionKind::forward || kind == ActionKind::send_forward;
}
bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
bool is_receive(ActionKind kind) {
  return kind == ActionKind::recv_forward || kind == ActionKind::recv_backward;
}
bool is_message(ActionKind kind) {
  return is_send(kind) || is_receive(kind);
}

// A microbatch in a chunk of a stage.
struct Unit {
  std::array<bool, 7> done{};  // by kind
  int left = 0;                // remaining uses of its memory
  double end = 0;              // of the last use
  const Unit* before = nullptr;  // used the arena before it
  double sent_backward = 0;
  bool sends_backward = false;
  bool over() const { return left == 0; }
  bool has_done(ActionKind kind) const { return done[static_cast<size_t>(kind)]; }
};

struct Stage {
  int number = 0;
  std::vector<TimedAction> actions{};
  std::vector<int> channels{};             // [actions]: of messages
  std::vector<std::vector<Unit>> units{};  // [chunks][microbatches]
  size_t position = 0;
  double clock = 0;
  Unit& unit(const Action& action) { return units[action.chunk][action.microbatch]; }
};

// One end of a channel: its actions in order, of which the first `posted` are in the queue.
struct End {
  int stage = -1;
  size_t queue = 0;
  std::vector<size_t> actions{};
  size_t posted = 0, taken = 0;
};
struct Channel {
  End send, receive;
  size_t over = 0;  // messages that are over
};
struct Queue {
  std::vector<const End*> ends;  // one entry per posted message, in order
  size_t head = 0;
  double free = 0;
  bool is_next(const End& end) const { return head < ends.size() && ends[head] == &end; }
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const std::vector<std::vector<Action>>& lists, int microbatches,
             const ScheduleCosts& costs, MessageQueues queues)
      : schedule_(schedule), count_(static_cast<int>(lists.size())), costs_(costs) {
    const int chunks = chunks_of(schedule);
    CHECK(costs.virtual_stages.empty() || static_cast<int>(costs.virtual_stages.size()) == count_ * chunks,
          "costs for ", costs.virtual_stages.size(), " virtual stages, but there are ", count_ * chunks);
    for (const auto& list : lists) {
      Stage stage{.number = static_cast<int>(stages_.size())};
      stage.units.assign(chunks, std::vector<Unit>(microbatches));
      for (const Action& action : list) stage.actions.push_back({action});
      stages_.push_back(std::move(stage));
    }
    channels_.resize(static_cast<size_t>(count_) * count_ * 2);
    queues_.resize(queues == MessageQueues::per_channel ? channels_.size() * 2 : static_cast<size_t>(count_) * 2);
    for (Stage& stage : stages_) prepare(stage, queues);
    for (Channel& channel : channels_) {
      if (!channel.send.actions.empty() || !channel.receive.actions.empty()) used_.push_back(&channel);
    }
    for (Channel* channel : used_) post(channel->receive, 0);
  }

  ScheduleTimes run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (Stage& stage : stages_) {
        while (advance(stage)) moved = true;
      }
      for (Channel* channel : used_) {
        while (exchange(*channel)) moved = true;
      }
    }
    return result();
  }

 private:
  void prepare(Stage& stage, MessageQueues queues) {
    const int number = stage.number;
    std::vector<Action> list;
    for (const TimedAction& timed : stage.actions) list.push_back(timed.action);
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      stage.unit(action).left += 1;
      if (action.kind == ActionKind::send_backward) stage.unit(action).sends_backward = true;
      int channel = -1;
      if (is_message(action.kind)) {
        CHECK(action.peer >= 0 && action.peer < count_ && action.peer != number, text_of(action), ": peer ",
              action.peer);
        const bool sends = is_send(action.kind);
        const int from = sends ? number : action.peer, to = sends ? action.peer : number;
        channel = (from * count_ + to) * 2 + (is_forward(action.kind) ? 0 : 1);
        End& end = sends ? channels_[channel].send : channels_[channel].receive;
        end.stage = number;
        end.queue = queues == MessageQueues::per_channel ? static_cast<size_t>(channel) * 2 + (sends ? 1 : 0)
                                                         : static_cast<size_t>(number) * 2 + (channel & 1);
        end.actions.push_back(i);
      }
      stage.channels.push_back(channel);
    }
    const ArenaAssignment assignment = assign_arenas(list, static_cast<int>(stage.units[0].size()));
    std::vector<Unit*> holder(assignment.chunks.size());
    for (const Action& action : list) {
      Unit& unit = stage.unit(action);
      Unit*& last = holder[assignment.arena_of[action.chunk][action.microbatch]];
      if (last != &unit) unit.before = std::exchange(last, &unit);
    }
  }

  // The unit of the same stage that passes its tensor to this computation.
  Unit* giver_of(Stage& stage, const Action& action) {
    const bool forward = action.kind == ActionKind::forward;
    if (!forward && action.kind != ActionKind::backward) return nullptr;
    const auto giver = neighbour(schedule_, count_, {stage.number, action.chunk}, forward ? -1 : 1);
    return giver && giver->stage == stage.number ? &stage.units[giver->chunk][action.microbatch] : nullptr;
  }

  double cost(int number, const Action& action) const {
    const int at = virtual_stage(schedule_, count_, number, action.chunk);
    const ChunkCost cost = costs_.virtual_stages.empty() ? ChunkCost{} : costs_.virtual_stages[at];
    if (action.kind == ActionKind::forward) return cost.forward;
    if (action.kind == ActionKind::weight_gradients) return cost.backward_weight;
    return cost.backward_input + (defers_weight_gradients(schedule_) ? 0 : cost.backward_weight);
  }

  // Whether a unit has the action's input.
  bool has_input(Stage& stage, const Action& action) {
    const auto done = [&](ActionKind kind) { return stage.unit(action).has_done(kind); };
    const bool forward = action.kind == ActionKind::forward;
    switch (action.kind) {
      case ActionKind::send_forward:
        return done(ActionKind::forward);
      case ActionKind::send_backward:
      case ActionKind::weight_gradients:
        return done(ActionKind::backward);
      case ActionKind::forward:
      case ActionKind::backward: {
        if (!forward && !done(ActionKind::forward)) return false;
        if (const Unit* giver = giver_of(stage, action)) return giver->has_done(action.kind);
        const bool from_outside = !neighbour(schedule_, count_, {stage.number, action.chunk}, forward ? -1 : 1);
        return from_outside || done(forward ? ActionKind::recv_forward : ActionKind::recv_backward);
      }
      default:
        return true;
    }
  }

  void finish(Unit& unit, ActionKind kind, double end) {
    unit.done[static_cast<size_t>(kind)] = true;
    unit.left -= 1;
    unit.end = std::max(unit.end, end);
  }

  // Puts the next message of an end into its queue.
  void post(End& end, double now) {
    if (end.posted == end.actions.size()) return;
    stages_[end.stage].actions[end.actions[end.posted++]].start = now;
    queues_[end.queue].ends.push_back(&end);
  }

  // Runs the next action of a stage, unless it must wait.
  bool advance(Stage& stage) {
    if (stage.position == stage.actions.size()) return false;
    TimedAction& timed = stage.actions[stage.position];
    const Action& action = timed.action;
    Unit& unit = stage.unit(action);
    if (unit.before != nullptr) {
      if (!unit.before->over()) return false;
      stage.clock = std::max(stage.clock, unit.before->end);
    }
    if (!has_input(stage, action)) return false;
    if (is_receive(action.kind)) {
      if (!take(stage, timed)) return false;
    } else if (is_send(action.kind)) {
      post(channels_[stage.channels[stage.position]].send, stage.clock);
    } else {
      timed.start = stage.clock;
      timed.end = stage.clock = stage.clock + cost(stage.number, action);
      finish(unit, action.kind, timed.end);
    }
    stage.position += 1;
    return true;
  }

  // Takes a message that has come, then posts the next receive.
  bool take(Stage& stage, const TimedAction& timed) {
    Channel& channel = channels_[stage.channels[stage.position]];
    End& end = channel.receive;
    if (channel.over <= end.taken) return false;
    if (timed.action.kind == ActionKind::recv_backward && end.taken >= kGradientsInUse) {
      const Action& earlier = stage.actions[end.actions[end.taken - kGradientsInUse]].action;
      const Unit& unit = stage.unit(earlier);
      if (unit.sends_backward && !unit.has_done(ActionKind::send_backward)) return false;
      stage.clock = std::max(stage.clock, unit.sent_backward);
    }
    stage.clock = std::max(stage.clock, timed.end);
    end.taken += 1;
    post(end, stage.clock);
    return true;
  }

  // Transfers the next message of a channel, if both ends are next in their queues and mean the same message.
  bool exchange(Channel& channel) {
    End &send = channel.send, &receive = channel.receive;
    if (send.stage < 0 || receive.stage < 0) return false;
    Queue &out = queues_[send.queue], &in = queues_[receive.queue];
    if (!out.is_next(send) || !in.is_next(receive)) return false;
    Stage &sender = stages_[send.stage], &receiver = stages_[receive.stage];
    TimedAction& sent = sender.actions[send.actions[channel.over]];
    TimedAction& received = receiver.actions[receive.actions[channel.over]];
    const int step = is_forward(sent.action.kind) ? 1 : -1;
    const int from = virtual_stage(schedule_, count_, sender.number, sent.action.chunk);
    const int to = virtual_stage(schedule_, count_, receiver.number, received.action.chunk);
    if (to != from + step || sent.action.microbatch != received.action.microbatch) return false;
    const double start = std::max({sent.start, received.start, out.free, in.free});
    const double end = start + costs_.message;
    for (TimedAction* timed : {&sent, &received}) timed->start = start, timed->end = end;
    out.free = in.free = end;
    out.head += 1;
    in.head += 1;
    channel.over += 1;
    finish(sender.unit(sent.action), sent.action.kind, end);
    finish(receiver.unit(received.action), received.action.kind, end);
    if (step < 0) sender.unit(sent.action).sent_backward = end;
    return true;
  }

  ScheduleTimes result() {
    ScheduleTimes times;
    double most_work = 0, work_of_all = 0, longest = 0;
    for (const Stage& stage : stages_) {
      double work = 0, first = stage.clock, last = 0;
      for (const TimedAction& timed : stage.actions) {
        times.total = std::max(times.total, timed.end);
        if (is_message(timed.action.kind)) continue;
        work += timed.duration();
        first = std::min(first, timed.start);
        last = std::max(last, timed.end);
      }
      longest = std::max(longest, last - first);
      most_work = std::max(most_work, work);
      work_of_all += work;
      if (stage.position < stage.actions.size()) {
        times.hang +=
            "stage " + std::to_string(stage.number) + ": " + text_of(stage.actions[stage.position].action) + "; ";
      }
    }
    for (const Channel* channel : used_) add_hanging(channel->send, channel->over, times.hang);
    times.bubble = longest / most_work - 1;
    times.idle = 1 - work_of_all / (count_ * times.total);
    for (Stage& stage : stages_) times.stages.push_back(std::move(stage.actions));
    return times;
  }

  // Adds a send that was posted and that nobody has received.
  void add_hanging(const End& send, size_t over, std::string& text) const {
    if (over == send.posted) return;
    const Action& action = stages_[send.stage].actions[send.actions[over]].action;
    text += "stage " + std::to_string(send.stage) + ": " + text_of(action) + "; ";
  }

  const Schedule schedule_;
  const int count_;
  const ScheduleCosts costs_;
  std::vector<Stage> stages_;
  std::vector<Channel> channels_;  // [from][to][forward, backward]
  std::vector<Channel*> used_;
  std::vector<Queue> queues_;
};

}  // namespace

ScheduleTimes simulate(const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs) {
  std::vector<std::vector<Action>> lists;
  for (int stage = 0; stage < stages; ++stage) lists.push_back(make_schedule(schedule, stages, stage, microbatches));
  return simulate(schedule, lists, microbatches, costs);
}

ScheduleTimes simulate(const Schedule& schedule, const std::vector<std::vector<Action>>& lists, int microbatches,
                       const ScheduleCosts& costs, MessageQueues queues) {
  return Simulation(schedule, lists, microbatches, costs, queues).run();
}

std::string text_of(const Action& action) {
  constexpr std::array kNames = {"recv_forward", "forward",       "send_forward",    "recv_backward",
                                 "backward",     "send_backward", "weight_gradients"};
  return std::string(kNames.at(static_cast<size_t>(action.kind))) + " " + std::to_string(action.microbatch) +
         " of chunk " + std::to_string(action.chunk);
}

}  // namespace shiftron
