// How a run stands, out of the files of its directory alone: readable from any machine that sees them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/lines.h"

namespace shiftron {

struct RunStatus {
  // queued: submitted, or on its way back; starting: its job has hosts and looks at them; silent: it should be running
  // and gives no sign of life.
  enum class State { unknown, queued, starting, running, silent, saved, done, failed };
  State state = State::unknown;
  std::string job{};    // of a batch system
  std::string where{};  // hosts with their ranks, of the last start; hosts of a job that is starting
  std::string why{};    // it is queued again, or has failed
  int code = 0;         // of the last exit
  double since = 0;     // seconds in that state

  int64_t step = 0, saved_step = -1;
  std::optional<int64_t> steps{};          // that it is to make
  std::string steps_fault{};               // why these are not known, where config.conf is there
  std::string save_fault{};                // of the last save, if it failed
  std::string start_fault{};               // of the last start, if it was refused and the run had been done
  double loss = 0, tokens_per_second = 0;  // over the last steps
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // likewise; NaN where rows have none
  std::optional<double> validation_loss{}, validation_accuracy{};
  std::optional<double> seconds_left{};  // of training, at the pace of the last steps
  std::vector<double> losses{};          // of every step that counts, in order

  // Of the seconds since the first start in which it was to run: not those between its end, or a start that was
  // refused, and the next start.
  int starts = 0;
  double wall_seconds = 0;
  double step_seconds = 0;  // in steps that count
  double save_seconds = 0;
  double repeated_seconds = 0;  // in steps that were made again
  double between_seconds = 0;   // between another end and the next start
  double lost_share() const;    // to restarts: repeated and between, of all
};

constexpr std::array<const char*, 8> names_of(RunStatus::State) {
  return {"not started", "queued", "starting", "running", "silent", "saved", "done", "failed"};
}

// Of one run, asked again and again: reads of its metrics only what has come since.
class RunStatusReader {
 public:
  explicit RunStatusReader(const std::string& directory);
  // Error(bad_input) where the directory is no run's. `steps`: of its configuration, where it is known; `now`: seconds
  // since 1970.
  RunStatus read(std::optional<int64_t> steps, double now);

 private:
  void read_metrics();

  std::string directory_;
  GrowingLines metrics_, superseded_;
  RunStatus told_;                                      // by these: only steps, their losses and seconds
  std::vector<double> last_seconds_, last_accuracies_;  // of the last steps
  double tokens_of_step_ = 0;
};

// A step that was skipped has no loss. NaN where none has one.
double mean_of_finite(std::span<const double> losses);

// For people, with the curve of the losses in `width` columns.
std::string to_text(const RunStatus& status, int width);
nlohmann::ordered_json to_json(const RunStatus& status);

}  // namespace shiftron
