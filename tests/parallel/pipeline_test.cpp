// Schedules and the arenas that they need.
#include "parallel/pipeline.h"

#include <gtest/gtest.h>

#include "core/enum_names.h"

namespace shiftron {
namespace {

TEST(Pipeline, MostInFlightIsWhatTheScheduleNeeds) {
  for (const PipelineKind kind : {PipelineKind::one_forward_one_backward, PipelineKind::gpipe}) {
    for (int stages = 1; stages <= 5; ++stages) {
      for (int stage = 0; stage < stages; ++stage) {
        for (int microbatches = 1; microbatches <= 9; ++microbatches) {
          const int arenas = assign_arenas(make_schedule({kind}, stages, stage, microbatches), microbatches).arenas;
          EXPECT_EQ(most_in_flight({kind}, stages, stage, microbatches), arenas)
              << to_string(kind) << ", stage " << stage << " of " << stages << ", " << microbatches << " microbatches";
        }
      }
    }
  }
}

}  // namespace
}  // namespace shiftron
