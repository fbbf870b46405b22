// The status of a run, from the files of its directory only: readable from any machine that sees them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/lines.h"

namespace shiftron {

struct RunStatus {
  // queued: submitted, or queued again; starting: its job has hosts and checks them; silent: it should be running but
  // gives no sign of life.
  enum class State { unknown, queued, starting, running, silent, saved, done, failed };
  State state = State::unknown;
  std::string job{};    // the batch system's job
  std::string where{};  // hosts of the last start with their ranks; or hosts of a job that is starting
  std::string why{};    // why it is queued again, or has failed
  int code = 0;         // of the last exit
  double since = 0;     // seconds in that state

  int64_t step = 0, saved_step = -1;
  std::optional<int64_t> steps{};          // that it is to train
  std::string steps_fault{};               // why `steps` is not known although config.conf exists
  std::string save_fault{};                // of the last save, if it failed
  std::string start_fault{};               // why the last start was refused, if the run had been done before
  double loss = 0, tokens_per_second = 0;  // over the last steps
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // likewise; NaN if rows have none
  std::optional<double> validation_loss{}, validation_accuracy{};
  std::optional<double> seconds_left{};  // of training, at the pace of the last steps
  std::vector<double> losses{};          // of every step that counts, in order

  // wall_seconds counts from the first start, without the time in which the run was not meant to run: between its end,
  // or a refused start, and the next start.
  int starts = 0;
  double wall_seconds = 0;
  double step_seconds = 0;  // in steps that count
  double save_seconds = 0;
  double repeated_seconds = 0;  // in steps that were repeated
  double between_seconds = 0;   // between any other end and the next start
  double lost_share() const;    // share of all that restarts cost: repeated and between
};

constexpr std::array<const char*, 8> names_of(RunStatus::State) {
  return {"not started", "queued", "starting", "running", "silent", "saved", "done", "failed"};
}

// Status of one run, for repeated reads: of the metrics it reads only what was added.
class RunStatusReader {
 public:
  explicit RunStatusReader(const std::string& directory);
  // Error(bad_input) if the directory is not a run's. `steps`: of its configuration, if known; `now`: seconds since
  // 1970.
  RunStatus read(std::optional<int64_t> steps, double now);

 private:
  void read_metrics();

  std::string directory_;
  GrowingLines metrics_, superseded_;
  RunStatus told_;                                      // from these files: only steps, their losses and seconds
  std::vector<double> last_seconds_, last_accuracies_;  // of the last steps
  double tokens_of_step_ = 0;
};

// Mean of the finite losses; a skipped step has none. NaN if there is none.
double mean_of_finite(std::span<const double> losses);

// For the user, with the loss curve in `width` columns.
std::string to_text(const RunStatus& status, int width);
nlohmann::ordered_json to_json(const RunStatus& status);

}  // namespace shiftron
