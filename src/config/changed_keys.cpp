// Differences of two configurations.
#include "config/changed_keys.h"

#include "config/options.h"
#include "core/check.h"
#include "core/shell_word.h"

namespace shiftron {

std::vector<ChangedKey> changed_keys(const RunConfig& before, const RunConfig& after) {
  std::vector<ChangedKey> changed;
  for (const Option& option : option_table()) {
    const std::vector<std::string> old_texts = option.write(before), new_texts = option.write(after);
    if (old_texts != new_texts) {
      changed.push_back({option.key, joined(old_texts), joined(new_texts), option.may_differ});
    }
  }
  return changed;
}

std::string new_run_from(const std::string& step_directory, const std::string& options) {
  return "shiftron checkpoint import " + shell_word(step_directory) +
         " --format shiftron --output NEW, then shiftron train --config NEW/config.conf " + options +
         " --output.directory NEW";
}

void require_resumable(const RunConfig& saved, const RunConfig& now, bool model_only,
                       const std::string& step_directory) {
  std::string faults;
  for (const std::string& fault : saved.reading_faults) faults += "\n  " + fault;
  if (!faults.empty()) {
    throw_bad_input(
        "the run's configuration contains values that this version of the program does not know; resume with the "
        "version that saved it:",
        faults);
  }
  bool of_model = false;
  for (const ChangedKey& changed : changed_keys(saved, now)) {
    if (changed.may_differ) continue;
    if (model_only && !is_model_key(changed.key)) continue;
    faults += "\n  " + changed.key + " was '" + changed.before + "', is now '" + changed.after + "'";
    if (const auto origin = now.origins.find(changed.key); origin != now.origins.end())
      faults += bracketed(origin->second);
    of_model = of_model || is_model_key(changed.key);
  }
  if (faults.empty()) return;
  if (!step_directory.empty() && !of_model) {
    faults += "\nthey may differ in a new run that starts from this step's parameters: " +
              new_run_from(step_directory, "--config YOURS.conf");
  }
  throw_bad_input("these keys may not differ when a run resumes:", faults);
}

}  // namespace shiftron
