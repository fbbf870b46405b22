// What a line of metrics.jsonl says of a step, without the rest of the line: such a file has hundreds of megabytes.
#pragma once

#include <cmath>
#include <optional>
#include <string_view>

namespace shiftron {

// Numbers at the line's own keys; NaN where one is null, or no number. Nothing where the key is missing.
struct StepRow {
  std::optional<double> step{}, tokens{}, loss{}, step_seconds{}, accuracy{}, validation_loss{}, validation_accuracy{};
};

// Reads until the first four are known: in our own rows they come early, accuracy before the last of them, and no other
// of these is there. Nothing where the line is no JSON object, or was cut by a crash.
std::optional<StepRow> read_step_row(std::string_view line);

}  // namespace shiftron
