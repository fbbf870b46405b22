// A picture of a schedule: what each stage does when.
#pragma once

#include <string>

#include "parallel/schedule_times.h"

namespace shiftron {

// SVG of stages × time, as simulate() has it: a box an action, with its microbatch's number where that fits and all of
// it as a tooltip; beside them the microbatches in flight (one number a chunk), above them the bubble. Of a schedule
// that is too long for the picture the first and the last part are drawn, and the gap says so. Throws where the
// schedule hangs.
std::string draw_schedule(const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs,
                          const std::string& title);

}  // namespace shiftron
