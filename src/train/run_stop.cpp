// Agrees on a stop over all ranks.
#include "train/run_stop.h"

#include <fmt/format.h>

#include <chrono>

#include "parallel/agree.h"

namespace shiftron {

bool RunStop::is_wanted(TimeLimit::Due due) {
  if (asked_()) return true;
  const auto now = TimeLimit::Clock::now();
  if (!limit.is_up(now, due)) return false;
  if (!limit_reported_) {
    limit_reported_ = true;
    log_.info(fmt::format("{:.0f} s of the allocation are left, and stopping may need {:.0f} s: saving and stopping",
                          std::chrono::duration<double>(*limit.end() - now).count(), limit.needed(due)));
  }
  return true;
}

bool RunStop::is_wanted_anywhere() {
  const bool wanted = is_stopping_ || is_wanted({});
  is_stopping_ = !joined_texts(world_, wanted ? "1" : "").empty();
  return is_stopping_;
}

}  // namespace shiftron
