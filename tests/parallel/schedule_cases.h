// Every kind of schedule over many sizes, with the lists of all stages.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/enum_names.h"
#include "parallel/pipeline.h"

namespace shiftron::testing {

#ifdef __SANITIZE_ADDRESS__
constexpr int kEveryMicrobatches = 9;  // 20 times slower there
#else
constexpr int kEveryMicrobatches = 1;
#endif
constexpr int kMostStages = 16, kMostMicrobatches = 64;

struct ScheduleCase {
  Schedule schedule{};
  bool training = true;
  int stages = 1, microbatches = 1;
  int chunks() const { return chunks_of(schedule); }
  bool deferred() const { return training && defers_weight_gradients(schedule); }
  std::vector<Action> actions(int stage) const {
    return training ? make_schedule(schedule, stages, stage, microbatches)
                    : make_forward_schedule(schedule, stages, stage, microbatches);
  }
  std::vector<std::vector<Action>> all_actions() const {
    std::vector<std::vector<Action>> lists;
    for (int stage = 0; stage < stages; ++stage) lists.push_back(actions(stage));
    return lists;
  }
  // The stage that holds the virtual stage `step` after that of a chunk; −1: none.
  int neighbour(int stage, int chunk, int step) const {
    const int other = virtual_stage(schedule, stages, stage, chunk) + step;
    return other < 0 || other == stages * chunks() ? -1 : chunk_place(schedule, stages, other).stage;
  }
  std::string text() const {
    return to_string(schedule.kind) + ", " + std::to_string(chunks()) + " chunks, " +
           (training ? deferred() ? std::to_string(schedule.delay) + " later, " : "" : "forward, ") +
           std::to_string(stages) + " stages, " + std::to_string(microbatches) + " microbatches";
  }
};

inline std::vector<Schedule> all_schedules() {
  using enum PipelineKind;
  return {{one_forward_one_backward},
          {gpipe},
          {zb_h1},
          {zb_v},
          {interleaved, 2},
          {interleaved, 3},
          {interleaved, 4},
          {one_forward_one_backward, 1, true, 0},
          {one_forward_one_backward, 1, true, 2},
          {gpipe, 1, true, 1},
          {interleaved, 2, true, 3}};
}

// Calls visit for every case until one fails.
inline void for_each_case(const std::function<void(const ScheduleCase&)>& visit) {
  for (const Schedule& schedule : all_schedules()) {
    for (const bool training : {true, false}) {
      if (!training && schedule.deferred) continue;
      for (int stages = 1; stages <= kMostStages; ++stages) {
        for (int microbatches = 1; microbatches <= kMostMicrobatches; microbatches += kEveryMicrobatches) {
          const ScheduleCase c{schedule, training, stages, microbatches};
          SCOPED_TRACE(c.text());
          visit(c);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// Calls visit for every stage of every case until one fails.
inline void for_each_stage(
    const std::function<void(const ScheduleCase&, int stage, const std::vector<Action>&)>& visit) {
  for_each_case([&](const ScheduleCase& c) {
    for (int stage = 0; stage < c.stages && !::testing::Test::HasFailure(); ++stage) {
      SCOPED_TRACE("stage " + std::to_string(stage));
      visit(c, stage, c.actions(stage));
    }
  });
}

}  // namespace shiftron::testing
