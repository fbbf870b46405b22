// RunStop: whether a run is to stop, because it was asked to or because its allocation ends.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "core/log.h"
#include "parallel/control_plane.h"
#include "train/time_limit.h"

namespace shiftron {

class RunStop {
 public:
  // `asked`: whether this process was asked to stop.
  RunStop(ControlPlane& world, std::function<bool()> asked, Log& log)
      : world_(world), asked_(std::move(asked)), log_(log) {}

  // Rank 0's; it stops all ranks.
  TimeLimit limit{};

  // Whether this rank wants the run to stop: it was asked, or there is only just time left for that. `due`: work before
  // the stop can take effect.
  bool is_wanted(TimeLimit::Due due);
  // Whether any rank wants it, which then holds for the rest of the run. Every rank asks equally often and gets the
  // same answer.
  bool is_wanted_anywhere();
  // The run stops if `stop`; the same on every rank.
  void add(bool stop) { is_stopping_ = is_stopping_ || stop; }
  bool is_stopping() const { return is_stopping_; }

 private:
  ControlPlane& world_;
  std::function<bool()> asked_;
  Log& log_;
  bool is_stopping_ = false, limit_reported_ = false;
};

}  // namespace shiftron
