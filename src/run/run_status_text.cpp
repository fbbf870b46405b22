// The status of a run, for the user and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "core/foreign_text.h"
#include "run/run_files.h"
#include "run/run_report.h"
#include "run/run_status.h"

namespace shiftron {
namespace {

using State = RunStatus::State;

constexpr int kCurveRows = 10;

// Mean loss of each column, drawn as dots.
std::string curve(const std::vector<double>& losses, int width) {
  constexpr int kLabel = 9;
  const int columns =
      static_cast<int>(std::min<size_t>(static_cast<size_t>(std::max(10, width - kLabel - 2)), losses.size()));
  if (columns < 2) return "";
  std::vector<double> means;
  for (int column = 0; column < columns; ++column) {
    const size_t begin = losses.size() * static_cast<size_t>(column) / static_cast<size_t>(columns);
    const size_t end = losses.size() * static_cast<size_t>(column + 1) / static_cast<size_t>(columns);
    means.push_back(mean_of_finite(std::span(losses).subspan(begin, end - begin)));
  }
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const double mean : means) {
    if (std::isfinite(mean)) low = std::min(low, mean), high = std::max(high, mean);
  }
  if (!(low <= high)) return "";
  const double span = std::max(high - low, 1e-12);
  std::string text;
  for (int row = 0; row < kCurveRows; ++row) {
    std::string line;
    for (const double mean : means) {
      const bool here = std::isfinite(mean) && std::lround((high - mean) / span * (kCurveRows - 1)) == row;
      line += here ? '*' : ' ';
    }
    const bool labelled = row == 0 || row == kCurveRows - 1;
    text += fmt::format("{:>{}} |{}\n", labelled ? fmt::format("{:.4f}", row == 0 ? high : low) : "", kLabel, line);
  }
  return text;
}

}  // namespace

std::string to_text(const RunStatus& status, int width) {
  std::string text = to_string(status.state);
  if (status.state == State::silent) {
    text +=
        fmt::format(": no sign of life for {}; it was killed, or its host or disk failed", duration_text(status.since));
  } else if (status.state != State::unknown) {
    text += fmt::format(" for {}", duration_text(status.since));
  }
  if (!status.job.empty()) text += fmt::format(", job {}", printable_line(status.job));
  const bool has_hosts = status.state == State::starting || status.state == State::running;
  if (!status.where.empty() && has_hosts) text += " on " + printable_line(status.where);
  text += "\n";
  if (!status.why.empty())
    text += fmt::format("  {}{}\n",
                        status.code > 0 && status.state == State::failed ? fmt::format("code {}: ", status.code) : "",
                        printable_value(status.why));
  if (!status.losses.empty()) {
    text += fmt::format("step {}{}, loss {:.4f}", thousands(status.step),
                        status.steps ? " of " + thousands(*status.steps) : "", status.loss);
    if (std::isfinite(status.accuracy)) text += fmt::format(", accuracy {:.3f}", status.accuracy);
    if (status.validation_loss) text += fmt::format(", held-out loss {:.4f}", *status.validation_loss);
    if (status.validation_accuracy) text += fmt::format(" (accuracy {:.3f})", *status.validation_accuracy);
    text += fmt::format(", {} tokens/s", thousands(static_cast<int64_t>(status.tokens_per_second)));
    if (status.seconds_left && status.step < status.steps && status.state != State::done)
      text += fmt::format(", {} of training left", duration_text(*status.seconds_left));
    text += "\n";
  }
  if (status.saved_step >= 0) text += fmt::format("saved: step {}\n", thousands(status.saved_step));
  if (!status.steps_fault.empty()) text += printable_value(status.steps_fault) + "\n";
  if (!status.save_fault.empty()) text += printable_value(status.save_fault) + "\n";
  if (!status.start_fault.empty()) text += printable_value(status.start_fault) + "\n";
  if (status.wall_seconds > 0) {
    const auto share = [&](double seconds) { return 100 * seconds / status.wall_seconds; };
    text += fmt::format(
        "{} of run time, {} start{}: {:.1f} % in steps, {:.1f} % in saves, {:.1f} % lost to restarts ({:.1f} % between "
        "starts, {:.1f} % in repeated steps)\n",
        duration_text(status.wall_seconds), status.starts, status.starts == 1 ? "" : "s", share(status.step_seconds),
        share(status.save_seconds), 100 * status.lost_share(), share(status.between_seconds),
        share(status.repeated_seconds));
  }
  if (const std::string picture = curve(status.losses, width); !picture.empty()) text += "\n" + picture;
  return text;
}

nlohmann::ordered_json to_json(const RunStatus& status) {
  nlohmann::ordered_json out = {{"state", to_string(status.state)},
                                {"seconds_in_state", status.since},
                                {"job", status.job},
                                {"where", status.where},
                                {"code", status.code},
                                {"why", status.why},
                                {"step", status.step},
                                {"steps", nullptr},
                                {"saved_step", status.saved_step},
                                {"save_fault", status.save_fault},
                                {"start_fault", status.start_fault},
                                {"loss", json_number(status.loss)},
                                {"accuracy", json_number(status.accuracy)},
                                {"tokens_per_second", status.tokens_per_second},
                                {"starts", status.starts},
                                {"wall_seconds", status.wall_seconds},
                                {"step_seconds", status.step_seconds},
                                {"save_seconds", status.save_seconds},
                                {"repeated_seconds", status.repeated_seconds},
                                {"between_seconds", status.between_seconds},
                                {"lost_share", status.lost_share()}};
  if (status.steps) out["steps"] = *status.steps;
  if (status.validation_loss) out["validation_loss"] = json_number(*status.validation_loss);
  if (status.validation_accuracy) out["validation_accuracy"] = json_number(*status.validation_accuracy);
  if (status.seconds_left) out["seconds_left"] = *status.seconds_left;
  return out;
}

}  // namespace shiftron
