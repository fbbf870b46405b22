// TimeLimit: whether what a run begins now can finish before its process must end.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace shiftron {

// A batch system's allocation ends at a stated time. Before that the run has to stop and save, and a stop requested now
// takes effect after the step after the next one at the latest (a result is read while the next step runs). So the time
// is up when there is only just room for three steps, a save, whatever is due meanwhile (each as long as the longest so
// far), and a margin.
class TimeLimit {
 public:
  using Clock = std::chrono::system_clock;    // the batch system's: the host's wall clock
  static constexpr double kUnknownSave = 30;  // seconds; of a run that has not saved yet
  static constexpr double kMargin = 5;        // seconds; for the launcher's end and the batch system's clock
  static constexpr double kSteps = 3;

  TimeLimit() = default;  // none
  // `save_seconds`: of an earlier start of the run, if known.
  TimeLimit(std::optional<Clock::time_point> end, std::optional<double> save_seconds)
      : end_(end), save_(save_seconds) {}

  void add_step(double seconds) { step_ = std::max(step_, seconds); }
  void add_save(double seconds) { save_ = std::max(save_.value_or(0), seconds); }
  void add_evaluation(double seconds) { evaluation_ = std::max(evaluation_, seconds); }

  // What is due before the stop's own save.
  struct Due {
    bool save = false;        // after the next step: the time may be up only then; the stop's comes two steps later
    bool evaluation = false;  // after one of those steps
  };
  // Seconds that the run needs from now on to leave nothing unfinished.
  double needed(Due due) const {
    const double save = save_.value_or(kUnknownSave);
    return kSteps * step_ + save + (due.save ? save : 0) + (due.evaluation ? evaluation_ : 0) + kMargin;
  }
  bool is_up(Clock::time_point now, Due due) const {
    return end_ && std::chrono::duration<double>(*end_ - now).count() < needed(due);
  }
  std::optional<Clock::time_point> end() const { return end_; }

 private:
  std::optional<Clock::time_point> end_;
  double step_ = 0, evaluation_ = 0;
  std::optional<double> save_;
};

}  // namespace shiftron
