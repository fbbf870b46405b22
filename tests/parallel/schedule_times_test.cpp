// Schedules compared: no hang however slow the exchange, and the published bubbles.
#include "parallel/schedule_times.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "core/check.h"
#include "parallel/schedule_cases.h"

namespace shiftron::testing {
namespace {

using enum ActionKind;
using enum PipelineKind;

// Each action comes after what it needs, at any stage.
void expect_in_order(const ScheduleCase& c, const ScheduleTimes& times) {
  const int all = c.stages * c.chunks();
  const auto make = [&] { return std::vector<double>(static_cast<size_t>(all * c.microbatches), -1); };
  std::vector<double> forwards = make(), backwards = make();  // ends, by virtual stage and microbatch
  const auto for_each = [&](const auto& visit) {
    for (int stage = 0; stage < c.stages; ++stage) {
      for (const TimedAction& timed : times.stages[stage]) {
        const int own = virtual_stage(c.schedule, c.stages, stage, timed.action.chunk);
        visit(timed, own, static_cast<size_t>(own * c.microbatches + timed.action.microbatch));
      }
    }
  };
  for_each([&](const TimedAction& timed, int, size_t at) {
    if (timed.action.kind == forward) forwards[at] = timed.end;
    if (timed.action.kind == backward) backwards[at] = timed.end;
  });
  const auto step = static_cast<size_t>(c.microbatches);
  for_each([&](const TimedAction& timed, int own, size_t at) {
    double ready = 0;
    if (timed.action.kind == forward && own > 0) ready = forwards[at - step];
    if (timed.action.kind == backward) ready = std::max(forwards[at], own == all - 1 ? 0 : backwards[at + step]);
    if (timed.action.kind == weight_gradients) ready = backwards[at];
    ASSERT_TRUE(ready >= 0 && timed.start >= ready && timed.end > 0) << text_of(timed.action) << " at " << timed.start;
  });
}

TEST(ScheduleTimes, NothingHangsAndEverythingFollowsWhatItNeeds) {
  for_each_case([](const ScheduleCase& c) {
    const ScheduleTimes times = simulate(c.schedule, c.all_actions(), c.microbatches);
    ASSERT_EQ(times.hang, "");
    expect_in_order(c, times);
  });
}

TEST(ScheduleTimes, NothingHangsWhateverTheCosts) {
  for (const Schedule& schedule : all_schedules()) {
    for (const int stages : {1, 2, 3, 5, 8}) {
      for (const int microbatches : {1, 2, 4, 9, 17}) {
        ScheduleCosts costs{.message = 2.5};
        for (int i = 0; i < stages * chunks_of(schedule); ++i) {
          costs.virtual_stages.push_back({1.0 + i % 3, 1.0 + (i * 5) % 4, 0.25 * (1 + i % 2)});
        }
        const ScheduleCase c{schedule, true, stages, microbatches};
        const ScheduleTimes times = simulate(schedule, stages, microbatches, costs);
        ASSERT_EQ(times.hang, "") << c.text();
        expect_in_order(c, times);
      }
    }
  }
}

TEST(ScheduleTimes, OfSmallExamples) {
  const auto total = [](const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs) {
    return simulate(schedule, stages, microbatches, costs).total;
  };
  const ScheduleCosts slow{.message = 0.5};
  EXPECT_DOUBLE_EQ(total({one_forward_one_backward}, 2, 1, slow), 1 + 0.5 + 1 + 2 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(total({zb_h1}, 2, 1, slow), 1 + 0.5 + 1 + 1 + 0.5 + 1 + 1);
  EXPECT_DOUBLE_EQ(total({zb_v}, 1, 1, slow), 6);  // handed over
  const ScheduleCosts head{.virtual_stages = {{1, 2, 3}, {10, 20, 30}}};
  EXPECT_DOUBLE_EQ(total({one_forward_one_backward}, 2, 1, head), 1 + 10 + 50 + 5);
  EXPECT_THROW(total({zb_v}, 2, 1, head), std::exception);
  const ScheduleTimes times = simulate({gpipe}, 2, 1, head);
  EXPECT_DOUBLE_EQ(times.idle, 0.5);
  EXPECT_DOUBLE_EQ(times.bubble, 66.0 / 60 - 1);
}

// 1f1b and interleaved: Narayanan et al. 2021, 2.2; zb-h1: Qi et al. 2023, table 2; zb-v: Qi et al. 2024. All parts
// cost the same.
TEST(ScheduleTimes, BubblesArePublishedOnes) {
  std::printf("idle time over work\n stages microbatches    1f1b interleaved 2       3       4   zb-h1    zb-v\n");
  for (const auto& [p, m] : {std::pair{1, 4},
                             {2, 2},
                             {2, 8},
                             {3, 5},
                             {4, 2},
                             {4, 4},
                             {4, 7},
                             {4, 16},
                             {4, 17},
                             {8, 9},
                             {8, 16},
                             {8, 64},
                             {16, 16},
                             {16, 31},
                             {16, 64}}) {
    const auto bubble = [p = p, m = m](const Schedule& schedule) { return simulate(schedule, p, m).bubble; };
    const double plain = static_cast<double>(p - 1) / m;
    EXPECT_NEAR(bubble({one_forward_one_backward}), plain, 1e-9);
    EXPECT_NEAR(bubble({gpipe}), plain, 1e-9);
    std::printf("%7d%13d%8.3f      ", p, m, bubble({one_forward_one_backward}));
    for (int chunks = 2; chunks <= 4; ++chunks) {
      const double found = bubble({interleaved, chunks});
      std::printf("%8.3f", found);
      EXPECT_NEAR(found, plain / chunks, m % p == 0 ? 1e-9 : plain);
    }
    const double h1 = bubble({zb_h1}), v = bubble({zb_v});
    std::printf("%8.3f%8.3f\n", h1, v);
    EXPECT_LE(h1, plain / (m >= p ? 3 : 1.5) + 1e-9);
    EXPECT_LE(v, m >= 2 * p - 1 ? 1e-9 : h1 + 1e-9);
  }
}

// Why a middle stage has four queues and not one per direction, in which the send of microbatch m could come after the
// receive of m + 1: that receive waits for the arena of a microbatch whose gradient has not been sent, because that
// send comes after the receive of the next gradient, which the last stage cannot compute without m.
TEST(ScheduleTimes, OneQueuePerDirectionHangs) {
  for (const PipelineKind kind : {one_forward_one_backward, gpipe}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int microbatches = 1; microbatches <= 20; ++microbatches) {
        const ScheduleCase c{{kind}, true, stages, microbatches};
        const ScheduleTimes times =
            simulate(c.schedule, c.all_actions(), microbatches, {}, MessageQueues::per_direction);
        EXPECT_EQ(times.hang != "", kind == one_forward_one_backward && stages >= 4 && microbatches >= 4) << c.text();
      }
    }
  }
}

TEST(ScheduleTimes, ShowWhatHangs) {
  using Lists = std::vector<std::vector<Action>>;
  const auto hang = [](const Lists& lists) { return simulate({}, lists, 3).hang; };
  const std::vector<Action> sends = {{forward, 0}, {send_forward, 0, 0, 1}};
  const std::vector<Action> receives = {{recv_forward, 0, 0, 0}, {forward, 0}};
  EXPECT_EQ(hang({sends, receives}), "");
  EXPECT_EQ(hang({sends, {{forward, 0}}}), "stage 1: forward 0 of chunk 0; stage 0: send_forward 0 of chunk 0; ");
  EXPECT_EQ(hang({{{forward, 0}}, receives}), "stage 1: recv_forward 0 of chunk 0; ");
  EXPECT_EQ(hang({sends, {{recv_forward, 1, 0, 0}}}),
            "stage 1: recv_forward 1 of chunk 0; stage 0: send_forward 0 of chunk 0; ");
  EXPECT_EQ(hang(Lists{{{forward, 0}, {weight_gradients, 0}}}), "stage 0: weight_gradients 0 of chunk 0; ");
}

// Each turns some list of a sound schedule into one that is not.
TEST(ScheduleTimes, ShowFaultsOfASchedule) {
  for (const Schedule& schedule : {Schedule{one_forward_one_backward}, {zb_h1}, {zb_v}, {interleaved, 2}}) {
    const ScheduleCase c{schedule, true, 3, 7};
    const auto all = c.all_actions();
    const auto hangs = [&](const std::vector<std::vector<Action>>& lists) {
      return simulate(schedule, lists, 7).hang != "";
    };
    const auto find = [](std::vector<Action>& list, ActionKind kind, int microbatch) {
      return std::ranges::find_if(list, [&](const Action& a) { return a.kind == kind && a.microbatch == microbatch; });
    };
    auto swapped = all;
    std::iter_swap(find(swapped[0], send_forward, 2), find(swapped[0], send_forward, 3));
    EXPECT_TRUE(hangs(swapped)) << c.text();
    auto lost = all;
    lost[1].erase(find(lost[1], recv_backward, 4));
    EXPECT_TRUE(hangs(lost)) << c.text();
    auto early = all;
    std::iter_swap(find(early[1], forward, 5), find(early[1], backward, 5));
    EXPECT_TRUE(hangs(early)) << c.text();
  }
}

}  // namespace
}  // namespace shiftron::testing
