// A picture of a schedule: what each stage does, and when.
#pragma once

#include <string>

#include "parallel/schedule_times.h"

namespace shiftron {

// SVG of stages × time, as simulate() returns it: one box per action, with its microbatch's number if that fits and all
// details in a tooltip; next to the boxes the microbatches in flight (one number per chunk), above them the bubble,
// warm-up, steady state and cool-down. Where numbers do not fit, every eighth microbatch is darker. If a schedule is
// too long for the picture, its first and last parts are drawn, and the gap says so. Throws if the schedule hangs.
std::string draw_schedule(const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs,
                          const std::string& title);

}  // namespace shiftron
