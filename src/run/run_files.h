// The files of a run's directory that grow: metrics.jsonl, events.jsonl.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/directory_lock.h"
#include "core/file.h"
#include "core/log.h"
#include "parallel/control_plane.h"

namespace shiftron {

// A number as JSON; null if it is not finite.
nlohmann::json json_number(double value);

// Appends one JSON object per line, also after a line that was cut. Errors: Error(crash) with the path; the file then
// ends with its last whole line, and the lines that it lacks wait, in order, for the next call.
class JsonLines {
 public:
  static constexpr size_t kMostWaiting = size_t{64} << 20;  // bytes; beyond that, later lines are dropped
  JsonLines() = default;                                    // writes nothing
  explicit JsonLines(const std::string& path);
  // `digits`: significant digits of floating-point numbers (9, or 17 in float64 runs).
  void write(const nlohmann::ordered_json& object, int digits = 17);
  void add(const nlohmann::ordered_json& object, int digits = 17);  // adds it to the lines that wait
  void flush();                                                     // writes the lines that wait
  bool waits() const { return !waiting_.empty(); }
  int64_t dropped() const { return dropped_; }  // lines, since the start
  // Reopens the path if another file, or none, is there now, and returns true.
  bool follow();
  void sync();  // what was written survives a power loss

 private:
  std::string path_;
  FileDescriptor file_;
  std::string missing_;  // the line end that the file's last line lacks
  std::string waiting_;  // lines that could not be written
  int64_t dropped_ = 0;
};

// Calls `visit` for every line of the file that is a JSON object, in order. A missing file has no lines.
void for_each_json_line(const std::string& path, const std::function<void(const nlohmann::json& object)>& visit);

// The text at `key` of an object; empty if it is missing or not a text.
std::string text_in(const nlohmann::json& object, const char* key);

// events.jsonl: {"time", "rank", "host", "event", …}; several ranks may append to it.
class Events {
 public:
  Events() = default;  // writes nothing
  Events(const std::string& directory, int rank);
  bool writes() const { return !path_.empty(); }
  // `details`: a JSON object of further fields. Starts a new line, also after a line that was cut. Never throws: events
  // that cannot be written wait, in order, for the next call of any copy of this object, up to kMostWaiting of them.
  void write(const std::string& event, const nlohmann::ordered_json& details) const noexcept;
  // Whether the last "start" is another process's; false if there is none.
  bool another_process_started() const noexcept;
  // Appends {"event": "exit", "code", "error"}. False if another rank has reported the same error since the last
  // "start".
  bool write_failure(int code, const std::string& message) const noexcept;

 private:
  static constexpr size_t kMostWaiting = 1000;  // lines; beyond that, later ones are dropped
  struct Waiting;
  std::string path_;
  int rank_ = 0;
  std::shared_ptr<Waiting> waiting_;
};

// RUN/checkpoints, which has one directory for each step that was saved.
std::string checkpoints_of(const std::string& directory);
// RUN/evaluations, which has one directory for each step at which benchmarks ran.
std::string evaluations_of(const std::string& directory);

// Words for messages about a run's directory: the option that names it, and what to do if it is in use.
struct RunWords {
  std::string option = "output.directory";
  std::string advice = "wait for it, stop it (signal USR1 makes it save first), or choose another output.directory";
};
// Seconds that the last save took, from the run's events.
std::optional<double> last_save_seconds(const std::string& directory);

// Creates the run's directory if it is missing, and locks it: only one process writes there. Removes half-written files
// of killed processes. Error(bad_input): it is in use, by whom, or it cannot be written.
std::unique_ptr<DirectoryLock> open_run(const std::string& directory, Log& log, const RunWords& words = {});

// Throws Error(bad_input) on every rank unless all see `written`, a file below `directory` that rank 0 names. Otherwise
// none of their steps could be saved.
void require_shared(ControlPlane& world, const std::string& directory, const std::string& written);

// Adds DIRECTORY/logs/rank-NNNNN.log to `log`. Error(bad_input) if it cannot be written.
void add_log_file(const std::string& directory, Log& log);

// Which rows metrics.jsonl has for a step.
struct RowsOfStep {
  bool loss = false, validation = false, benchmarks = false;
};
// Moves the end of metrics.jsonl, starting with its first row of a step above `step`, to metrics.superseded.jsonl. Rows
// are in the order of their steps, and only those after `step` are read. If it is killed at any moment, the next call
// completes it. Error(crash) if the files cannot be written; both then have the rows that they had. Returns which rows
// of `step` stay.
RowsOfStep supersede_metrics(const std::string& directory, int64_t step);

// An event: the rest of the evaluation at "step" waits for the next start.
inline const char* const kEvaluationLeft = "evaluation_left";
// How many of these events the run has for `step`.
int64_t count_interrupted_evaluations(const std::string& directory, int64_t step);

}  // namespace shiftron
