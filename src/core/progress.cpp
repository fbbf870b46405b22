// Writes progress lines.
#include "core/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace shiftron {
namespace {

constexpr double kSilentSeconds = 2;  // work that ends sooner shows nothing
constexpr double kTerminalInterval = 0.2;
constexpr double kPlainInterval = 5;

Progress::Output default_output() {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  return {&std::cerr, ::isatty(STDERR_FILENO) == 1, seconds};
}

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string amount(double value, const std::string& unit) {
  if (unit != "bytes") return format("%.0f ", value) + unit;
  if (value >= 1e9) return format("%.2f GB", value / 1e9);
  if (value >= 1e6) return format("%.1f MB", value / 1e6);
  return format("%.1f kB", value / 1e3);
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

Progress::Progress(std::string label, uint64_t total, std::string unit)
    : Progress(std::move(label), total, std::move(unit), Output{}) {}

Progress::Progress(std::string label, uint64_t total, std::string unit, Output output)
    : label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      output_(output.stream != nullptr ? std::move(output) : default_output()) {
  start_ = output_.seconds();
  last_shown_ = start_ + kSilentSeconds - (output_.terminal ? kTerminalInterval : kPlainInterval);
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // a lost progress line harms nobody
  }
}

void Progress::update(uint64_t done) {
  done_ = done;
  if (finished_) return;
  const double now = output_.seconds();
  if (now - last_shown_ >= (output_.terminal ? kTerminalInterval : kPlainInterval)) show(now);
}

void Progress::resume(uint64_t kept) {
  done_ = kept_ = kept;
  *output_.stream << label_ << ": resumes; " << amount(static_cast<double>(kept), unit_);
  if (total_ > 0) *output_.stream << " of " << amount(static_cast<double>(total_), unit_);
  *output_.stream << " are kept from the run that was interrupted" << std::endl;
}

void Progress::show(double now) {
  last_shown_ = now;
  shown_ = true;
  const double elapsed = std::max(now - start_, 1e-9);
  const bool has_rate = done_ > kept_;
  const double rate = has_rate ? static_cast<double>(done_ - kept_) / elapsed : 0;
  std::string line = label_ + ": ";
  if (total_ > 0) {
    line += amount(static_cast<double>(done_), unit_) + " of " + amount(static_cast<double>(total_), unit_) + " (" +
            format("%.0f", 100.0 * static_cast<double>(done_) / static_cast<double>(total_)) + " %)";
  } else if (done_ > 0) {
    line += amount(static_cast<double>(done_), unit_);
  }
  if (has_rate) line += ", " + amount(rate, unit_) + "/s";
  if (finished_ || total_ == 0) {
    line += (done_ > 0 ? ", " : "") + duration(elapsed) + (finished_ ? " in all" : " so far");
  } else if (has_rate && total_ >= done_) {
    line += ", " + duration(static_cast<double>(total_ - done_) / rate) + " left";
  }
  std::ostream& stream = *output_.stream;
  if (output_.terminal) {
    const size_t width = line.size();
    line.append(width_ > width ? width_ - width : 0, ' ');
    width_ = width;
    stream << '\r' << line << (finished_ ? "\n" : "");
  } else {
    stream << line << '\n';
  }
  stream.flush();
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (shown_) show(output_.seconds());
}

}  // namespace shiftron
