// Appending JSON lines.
#include "train/run_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"

namespace shiftron {
namespace {

// nlohmann-json always writes the shortest text that reads back; rounding to `digits` first shortens it further.
nlohmann::ordered_json rounded(nlohmann::ordered_json value, int digits) {
  if (value.is_structured()) {
    for (auto& item : value) item = rounded(item, digits);
  } else if (value.is_number_float() && digits < 17) {
    return std::stod(fmt::format("{:.{}g}", value.get<double>(), digits));
  }
  return value;
}

std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     milliseconds % 1000);
}

}  // namespace

nlohmann::json json_number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

JsonLines::JsonLines(const std::string& path) : path_(path), file_(FileDescriptor::open_for_appending(path)) {}

void JsonLines::write(const nlohmann::ordered_json& object, int digits) {
  if (path_.empty()) return;
  const std::string line = rounded(object, digits).dump() + "\n";
  const uint64_t whole = file_.size();
  try {
    file_.append(line.data(), line.size());
  } catch (...) {
    [[maybe_unused]] const int result = ftruncate(file_.get(), static_cast<off_t>(whole));
    throw;
  }
}

void Events::write(const std::string& event, const nlohmann::ordered_json& details) const noexcept {
  if (path_.empty()) return;
  try {
    nlohmann::ordered_json line = {{"time", now_text()}, {"rank", rank_}, {"host", host_name()}, {"event", event}};
    line.update(details);
    const std::string text = line.dump() + "\n";
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    [[maybe_unused]] const auto written = ::write(file, text.data(), text.size());
    close(file);
  } catch (...) {  // an event is never worth a run
  }
}

bool Events::write_failure(int code, const std::string& message) const noexcept {
  write("exit", {{"code", code}, {"error", message}});
  try {
    std::ifstream input(path_);
    int first = rank_;
    bool told = false;
    for (std::string line; std::getline(input, line);) {
      const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
      if (!object.is_object()) continue;
      const std::string event = object.value("event", "");
      if (event == "start") told = false;
      if (event != "exit" || told || object.value("error", "") != message) continue;
      told = true;
      first = object.value("rank", rank_);
    }
    return first == rank_ || !told;
  } catch (...) {
    return true;
  }
}

void supersede_metrics(const std::string& directory, int64_t step) {
  const std::string path = directory + "/metrics.jsonl";
  std::ifstream input(path);
  if (!input) return;
  std::string kept, moved, line;
  while (std::getline(input, line)) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);  // a line may be cut by a crash
    const bool later = !object.is_object() || object.value("step", int64_t{0}) > step;
    (later ? moved : kept) += line + "\n";
  }
  if (moved.empty()) return;
  std::ofstream(directory + "/metrics.superseded.jsonl", std::ios::app) << moved;
  write_file_durably(path, kept);
}

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace shiftron
