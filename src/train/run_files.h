// The files of a run's directory that grow: metrics.jsonl, events.jsonl.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/file.h"

namespace shiftron {

// A number as JSON; null where it is not finite.
nlohmann::json json_number(double value);

// Appends one JSON object a line. Errors: Error(crash) with the path; the file then ends with its last whole line.
class JsonLines {
 public:
  JsonLines() = default;  // writes nothing
  explicit JsonLines(const std::string& path);
  // `digits`: significant digits of floating-point numbers (9, or 17 in float64 runs).
  void write(const nlohmann::ordered_json& object, int digits = 17);

 private:
  std::string path_;
  FileDescriptor file_;
};

// events.jsonl: {"time", "rank", "host", "event", …}; several ranks may append to it.
class Events {
 public:
  Events() = default;  // writes nothing
  Events(const std::string& directory, int rank) : path_(directory + "/events.jsonl"), rank_(rank) {}
  // `details`: a JSON object of further fields. Never throws: an event that cannot be written is dropped.
  void write(const std::string& event, const nlohmann::ordered_json& details) const noexcept;
  // Appends {"event": "exit", "code", "error"}. False if another rank has told the same since the last "start".
  bool write_failure(int code, const std::string& message) const noexcept;

 private:
  std::string path_;
  int rank_ = 0;
};

// Moves lines of metrics.jsonl with a step above `step` to metrics.superseded.jsonl.
void supersede_metrics(const std::string& directory, int64_t step);

std::string host_name();

}  // namespace shiftron
