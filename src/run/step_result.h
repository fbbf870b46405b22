// What a run reports: of a step, of a held-out evaluation, of benchmark tasks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ledger.h"

namespace shiftron {

// What the host learns about a step.
struct StepResult {
  double loss = 0;           // nats per counted target, before the update; NaN without any
  double accuracy = 0;       // share of counted targets that are the most likely token; NaN without any
  double gradient_norm = 0;  // before clipping
  double counted = 0;        // targets
  double attended = 0;       // Σ over rows of the rows, itself included, that each attends to
  bool skipped = false;
  bool stop = false;                // a rank was asked to stop
  std::vector<double> group_norms;  // per Trainer::group_names()
  // [layer][stream: query, key, value][taps, oldest first] mean over heads; empty without shift
  std::vector<std::array<std::vector<double>, 3>> taps;
  int64_t skipped_updates = 0, skipped_in_row = 0;  // so far
  double seconds = 0;                               // from the start of the step to its end, on the device
  double elapsed = 0;                               // from the start of this trainer's first step to that end
  TimeSplit times;  // of the step; what a device has not finished by its end counts in the next step
};

// Over counted targets; NaN without any.
struct MeanLoss {
  double loss = 0;      // nats
  double accuracy = 0;  // share that is the most likely token
  double counted = 0;
};
struct EvaluationResult {
  MeanLoss all;
  std::vector<MeanLoss> sources;  // each of data.validation; empty if there is only one
};

// One value of a benchmark.
struct StepValue {
  std::string task{}, metric{};
  double value = 0;
  std::optional<double> error{};  // standard error
};

}  // namespace shiftron
