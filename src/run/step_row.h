// Reads the step's numbers from a line of metrics.jsonl, and skips the rest of the line: such a file can have hundreds
// of megabytes.
#pragma once

#include <cmath>
#include <optional>
#include <string_view>

namespace shiftron {

// Numbers at the line's top-level keys; NaN if one is null or not a number, unset if the key is missing.
struct StepRow {
  std::optional<double> step{}, tokens{}, loss{}, step_seconds{}, accuracy{}, validation_loss{}, validation_accuracy{};
};

// Reads until the first four are known: in rows of our own they come early, accuracy comes before the last of them, and
// the others are not in such a row. Unset if the line is not a JSON object, or was cut by a crash.
std::optional<StepRow> read_step_row(std::string_view line);

}  // namespace shiftron
