// Compares two configurations: which keys differ, and which of them may differ when a run resumes.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace shiftron {

struct ChangedKey {
  std::string key, before, after;
  bool may_differ = false;  // on resume
};
// Keys whose values differ, in the order of the table.
std::vector<ChangedKey> changed_keys(const RunConfig& before, const RunConfig& after);
// Throws Error(bad_input) that lists the changed keys that may not differ on resume, or what could not be read of
// `saved`. `model_only`: only the keys of [model] and [shift], since `saved` holds no others. `step_directory`: if
// given, the message names the commands for a new run from that step.
void require_resumable(const RunConfig& saved, const RunConfig& now, bool model_only = false,
                       const std::string& step_directory = "");

// The commands that begin a new run with the step's parameters; `options`: of its training.
std::string new_run_from(const std::string& step_directory, const std::string& options);

}  // namespace shiftron
