// Reads all events at each read(), but each row of the metrics only once.
#include "run/run_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/steps.h"
#include "config/run_config.h"
#include "core/check.h"
#include "core/directory_lock.h"
#include "core/median.h"
#include "run/run_files.h"
#include "run/run_report.h"
#include "run/step_row.h"

namespace shiftron {
namespace {

using nlohmann::json;
using State = RunStatus::State;

constexpr size_t kLastSteps = 20;    // that determine pace and loss
constexpr double kMostSilence = 60;  // seconds without a sign of life; a lock is touched every 5

// Seconds since 1970 of "2026-11-22T02:34:35.123Z"; NaN if it is not a time.
double seconds_of(const std::string& text) {
  std::tm time{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest == nullptr) return std::nan("");
  return static_cast<double>(::timegm(&time)) + (*rest == '.' ? std::atof(rest) : 0);
}

double number_in(const json& object, const char* key, double otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::optional<int64_t> whole_step(double step) {
  constexpr double kMost = 1e15;  // no run has more
  return step >= 0 && step <= kMost ? std::optional(static_cast<int64_t>(step)) : std::nullopt;
}

std::optional<int64_t> step_in(const json& object) {
  return whole_step(number_in(object, "step", -1));
}

double finite_or_zero(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? *number : 0;
}

int code_in(const json& object) {
  const double code = number_in(object, "code", -1);
  return code >= 0 && code <= 255 ? static_cast<int>(code) : static_cast<int>(ExitCode::crash);
}

std::string hosts_in(const json& start) {
  std::string text;
  const json hosts = start.value("hosts", json::object());
  for (const auto& [host, ranks] : hosts.items()) {
    text += fmt::format("{}{} ({} ranks)", text.empty() ? "" : ", ", host, ranks.dump());
  }
  return text;
}

// Seconds since 1970 of the last sign of life of the run's lock holder; unset if nobody holds it.
std::optional<double> last_sign(const std::string& directory) {
  std::optional<double> newest;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/" + DirectoryLock::kName, error)) {
    const auto touched = std::filesystem::last_write_time(entry.path(), error);
    if (error) continue;
    const auto system = std::chrono::file_clock::to_sys(touched);
    const double seconds = std::chrono::duration<double>(system.time_since_epoch()).count();
    newest = std::max(newest.value_or(seconds), seconds);
  }
  return newest;
}

std::string reason_of(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::crash:
      return "crash";
    case ExitCode::hang:
      return "a rank hung, or a peer was lost";
    case ExitCode::non_finite:
      return "too many non-finite steps in a row";
    case ExitCode::no_checkpoint:
      return "no valid checkpoint";
    case ExitCode::stopped:
      return "stopped and not requeued";
    case ExitCode::bad_input:
      return "invalid configuration or data";
    case ExitCode::do_not_requeue:
      return "must not be requeued";
    default:
      return fmt::format("exit code {}", code);
  }
}

// The batch system's job that runs the run: meanwhile others may be submitted, or start and be refused.
struct Jobs {
  std::string begun{};  // has its hosts; the next start is this job's
  std::string of_start{};

  void read(const std::string& event, const std::string& job) {
    if (event == "job") begun = job;
    if (event == "start") of_start = begun;
    if ((event == "left" || event == "requeue") && job == begun) begun.clear();
  }
};

// A run's events, from the first to the last.
class Life {
 public:
  explicit Life(RunStatus& status, double now) : status_(status), now_(now), state_began_(now) {}

  void read(const json& event) {
    const std::string name = text_in(event, "event");
    const double when = seconds_of(text_in(event, "time"));
    if (std::isnan(when)) return;
    const std::string job = text_in(event, "job");
    jobs_.read(name, job);
    if (!job.empty()) status_.job = job;
    if (name == "resume" || name == "checkpoint" || name == "skip") done_ = std::nan("");  // training continues
    if (name == "job") {
      job_began_ = when;
      nodes_ = text_in(event, "nodes");
    } else if (name == "queued" || name == "requeue") {
      become(State::queued, when);
      job_began_ = std::nan("");
      status_.why = text_in(event, "why");
    } else if (name == "start") {
      start(event, when);
    } else if (name == "checkpoint") {
      status_.save_seconds += number_in(event, "seconds");
      status_.save_fault.clear();
    } else if (name == "checkpoint_failed") {
      status_.save_fault = fmt::format("step {} could not be saved: {}", thousands(step_in(event).value_or(0)),
                                       text_in(event, "reason"));
    } else if (name == "exit") {
      exit(event, when, job.empty());
    } else if (name == "left") {
      job_began_ = std::nan("");
      if (status_.state != State::queued) return;
      end(event, when);  // the job left before the program wrote anything
      status_.why = status_.state == State::done ? "" : reason_of(status_.code) + ", see the job's log in slurm/";
      keep_done(event);
    }
  }

  // Call it after the last event: takes into account the lock in `directory`.
  void judge(const std::string& directory) {
    const bool no_exit = !std::isnan(last_start_) && std::isnan(ended_);  // the last start has no exit
    const std::optional<double> sign = last_sign(directory);
    const bool alive = sign && now_ - *sign <= kMostSilence && !DirectoryLock::has_dead_holder(directory);
    if (no_exit && alive) {
      become(State::running, last_start_);
      status_.job = jobs_.of_start;
      status_.why.clear();
      status_.code = 0;
    } else if (!std::isnan(job_began_)) {
      become(State::starting, job_began_);
      status_.where = nodes_;
      status_.why.clear();
      status_.code = 0;
    } else if (status_.state == State::running) {
      become(State::silent, sign.value_or(state_began_));
      ended_ = sign.value_or(now_);
    }
    status_.since = std::max(0.0, now_ - state_began_);
    const bool over = status_.state == State::done || status_.state == State::failed || status_.state == State::saved;
    const double last = over && !std::isnan(ended_) ? ended_ : now_;
    const bool waits = status_.state == State::queued || status_.state == State::starting;
    if (waits) add_gap(now_);
    if (!std::isnan(first_start_)) status_.wall_seconds = std::max(0.0, last - first_start_ - rested_seconds_);
  }

 private:
  void become(State state, double when) {
    status_.state = state;
    state_began_ = when;
  }
  void start(const json& event, double when) {
    become(State::running, when);
    last_start_ = when;
    job_began_ = std::nan("");
    status_.job = jobs_.of_start;
    status_.where = hosts_in(event);
    status_.why.clear();
    status_.start_fault.clear();
    if (std::isnan(first_start_)) first_start_ = when;
    add_gap(when);
    ended_ = std::nan("");
    ++status_.starts;
  }
  // The first rank's exit says why; the job's own exit, which ends it for good, replaces that.
  void exit(const json& event, double when, bool of_rank) {
    if (!std::isnan(ended_) && of_rank) return;
    ended_ = std::isnan(ended_) ? when : ended_;
    if (of_rank) status_.job = jobs_.of_start;
    end(event, when);
    status_.why = text_in(event, "error");
    if (status_.why.empty() && status_.state == State::failed) status_.why = reason_of(status_.code);
    keep_done(event);
  }
  void end(const json& event, double when) {
    status_.code = code_in(event);
    const auto code = static_cast<ExitCode>(status_.code);
    become(code == ExitCode::done ? State::done : code == ExitCode::stopped ? State::saved : State::failed, when);
    refused_ = code == ExitCode::bad_input;
    if (!refused_) done_ = code == ExitCode::done ? when : std::nan("");
  }
  // A run that is done stays done if another start of it is refused.
  void keep_done(const json& event) {
    if (!refused_ || std::isnan(done_)) return;
    status_.start_fault = fmt::format("a later start failed at {}: {}", text_in(event, "time"), status_.why);
    status_.why.clear();
    status_.code = 0;
    become(State::done, done_);
  }
  // Counts the time since its last end; if that was done or refused, the run waits for its user.
  void add_gap(double until) {
    if (std::isnan(ended_)) return;
    const bool rested = refused_ || !std::isnan(done_);
    const double gap = std::max(0.0, until - ended_);  // the clocks of two hosts may differ
    (rested ? rested_seconds_ : status_.between_seconds) += gap;
  }

  RunStatus& status_;
  double now_, state_began_;
  double first_start_ = std::nan(""), last_start_ = std::nan(""), ended_ = std::nan("");
  double done_ = std::nan("");       // when the run was done; NaN if it continued after that
  bool refused_ = false;             // whether its last end was a fault of configuration or data
  double rested_seconds_ = 0;        // in which it was not meant to run
  double job_began_ = std::nan("");  // begin of the last job, until that starts the program or leaves
  std::string nodes_;                // hosts of that job
  Jobs jobs_;
};

// The first run of an array in that directory; "" if there is none.
std::string first_of_array(const std::string& directory) {
  std::string first;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("seed-") && (first.empty() || name < first)) first = name;
  }
  return first.empty() ? "" : directory + "/" + first;
}

}  // namespace

double mean_of_finite(std::span<const double> losses) {
  double sum = 0;
  int64_t count = 0;
  for (const double loss : losses) {
    if (std::isfinite(loss)) sum += loss, ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::nan("");
}

double RunStatus::lost_share() const {
  return wall_seconds > 0 ? std::min(1.0, (repeated_seconds + between_seconds) / wall_seconds) : 0;
}

RunStatusReader::RunStatusReader(const std::string& directory)
    : directory_(directory),
      metrics_(directory + "/metrics.jsonl"),
      superseded_(directory + "/metrics.superseded.jsonl") {}

void RunStatusReader::read_metrics() {
  const auto on_restart = [&] {
    told_ = {.repeated_seconds = told_.repeated_seconds};
    last_seconds_.clear();
    last_accuracies_.clear();
  };
  metrics_.read(on_restart, [&](const std::string& line) {
    const StepRow row = read_step_row(line).value_or(StepRow{});
    if (row.validation_loss) {
      told_.validation_loss = row.validation_loss;
      told_.validation_accuracy = row.validation_accuracy;
    }
    const std::optional<int64_t> step = whole_step(row.step.value_or(-1));
    if (!row.step_seconds || !step) return;
    told_.step = *step;
    if (last_seconds_.size() == kLastSteps) last_seconds_.erase(last_seconds_.begin());
    last_seconds_.push_back(finite_or_zero(row.step_seconds));
    told_.step_seconds += last_seconds_.back();
    if (last_accuracies_.size() == kLastSteps) last_accuracies_.erase(last_accuracies_.begin());
    last_accuracies_.push_back(row.accuracy.value_or(std::nan("")));
    told_.losses.push_back(row.loss.value_or(std::nan("")));
    tokens_of_step_ = finite_or_zero(row.tokens) / std::max<double>(1, static_cast<double>(told_.step));
  });
  superseded_.read([&] { told_.repeated_seconds = 0; },
                   [&](const std::string& line) {
                     told_.repeated_seconds += finite_or_zero(read_step_row(line).value_or(StepRow{}).step_seconds);
                   });
}

RunStatus RunStatusReader::read(std::optional<int64_t> steps, double now) {
  const auto there = [&](const char* name) { return std::filesystem::exists(directory_ + "/" + name); };
  if (!there("events.jsonl") && !there("config.conf")) {
    const std::string run = first_of_array(directory_);
    throw_bad_input(
        directory_, " is not a run's directory: it has neither events.jsonl nor config.conf; ",
        run.empty() ? "give the run's output.directory" : "it contains one run per seed; give one of these: " + run);
  }
  read_metrics();
  RunStatus status = told_;
  status.steps = steps;
  if (!last_seconds_.empty()) {
    const double pace = median_of(last_seconds_);
    status.loss = mean_of_finite(std::span(status.losses).last(last_seconds_.size()));
    status.accuracy = mean_of_finite(last_accuracies_);
    if (pace > 0) status.tokens_per_second = tokens_of_step_ / pace;
    if (steps && *steps >= status.step) status.seconds_left = pace * static_cast<double>(*steps - status.step);
  }
  Life life(status, now);
  for_each_json_line(directory_ + "/events.jsonl", [&](const json& event) { life.read(event); });
  life.judge(directory_);
  const std::vector<StepDirectory> saved = list_steps(checkpoints_of(directory_));
  if (!saved.empty()) status.saved_step = saved.front().step;
  return status;
}

}  // namespace shiftron
