// What `shiftron inspect heads` finds in a step, and its JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "evaluate/head_scores.h"
#include "evaluate/head_taps.h"

namespace shiftron::cli {

struct InspectedStep {
  int64_t step = 0;
  std::string directory;
  ModelConfig model;
  TapReport taps;
  HeadReport scores;
};

// As docs/inspect.md describes it. `options` are those that the scores were computed with.
nlohmann::ordered_json step_json(const InspectedStep& of, const RepeatOptions& options);

}  // namespace shiftron::cli
