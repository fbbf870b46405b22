// Applies the rule of apply_retention(), after reading every byte of the newest step.
#include "run/prune.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "checkpoint/verify.h"
#include "core/check.h"
#include "core/directory_lock.h"
#include "core/file.h"
#include "core/system_error.h"
#include "run/resume.h"
#include "run/run_files.h"
#include "run/saved_state.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

std::string existing_checkpoints(const std::string& run) {
  const std::string checkpoints = checkpoints_of(run);
  refuse_lost_link(checkpoints);
  if (!fs::is_directory(checkpoints))
    throw_bad_input(run, " is not a run: it has no folder checkpoints; check the path");
  return checkpoints;
}

// checkpoint.keep and keep_every of the newest valid step.
CheckpointSection rule_of(const std::string& checkpoints) {
  for (const StepDirectory& entry : list_steps(checkpoints)) {
    try {
      return saved_config(check_step(entry.path).state_json, entry.path).checkpoint;
    } catch (const Error&) {
      continue;  // not valid: neither counted nor touched
    }
  }
  throw_bad_input(checkpoints, " contains no valid step; `shiftron checkpoint list` shows why");
}

// A step that was read without a fault, and its manifest, by which it differs from a later step of the same number.
struct UndamagedStep {
  int64_t step = -1;
  std::string manifest{};
};

std::string manifest_of(const StepDirectory& entry) {
  try {
    return read_file(entry.path + "/" + kManifestName, kLargestManifest);
  } catch (const Error&) {  // verify_step() says why
    return "";
  }
}

// The newest step without any fault. Reads every byte of the steps that it tries, except `known`.
UndamagedStep newest_undamaged_step(const std::string& checkpoints, const UndamagedStep& known,
                                    const BytesRead& progress) {
  std::string faults;
  for (const StepDirectory& entry : list_steps(checkpoints)) {
    const UndamagedStep candidate{entry.step, manifest_of(entry)};
    if (candidate.step == known.step && candidate.manifest == known.manifest) return known;
    const std::vector<std::string> found = verify_step(entry.path, progress);
    if (found.empty()) return candidate;
    faults += "\n  step " + std::to_string(entry.step) + ": " + found.front();
  }
  throw Error("every step in " + checkpoints + " is damaged, so nothing is removed:" + faults, ExitCode::no_checkpoint);
}

// Bytes of the files below `path`; files may disappear meanwhile.
uint64_t bytes_below(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code gone;
  for (fs::recursive_directory_iterator entry(path, gone), end; !gone && entry != end; entry.increment(gone)) {
    std::error_code no_file;
    const uintmax_t size = entry->file_size(no_file);
    if (!no_file) bytes += size;
  }
  return bytes;
}

std::unique_ptr<DirectoryLock> lock_of(const std::string& run) {
  return std::make_unique<DirectoryLock>(
      run, "a running training removes its old steps itself; wait for it, or stop it", [](const std::string&) {});
}

// One thing to remove that takes room on the disk: a leftover, otherwise the oldest step.
Pruning one_of(const Pruning& planned) {
  Pruning one;
  for (const Leftover& left : planned.leftovers) {
    if (left.bytes > 0 && one.leftovers.empty()) one.leftovers = {left};
  }
  if (one.leftovers.empty() && !planned.steps.empty()) one.steps = {planned.steps.back()};
  return one;
}

// What cannot be removed is reported after the rest was removed.
void remove_all_of(const Pruning& pruning, const std::function<void()>& before_each) {
  std::string faults;
  const auto remove = [&](const auto& one) {
    before_each();
    try {
      one();
    } catch (const fs::filesystem_error& error) {
      faults += (faults.empty() ? "" : "\n") + std::string(as_error(error).what());
    }
  };
  for (const Leftover& left : pruning.leftovers) remove([&] { fs::remove_all(left.path); });
  for (const SuperfluousStep& entry : pruning.steps) remove([&] { remove_step(entry.step); });
  if (!faults.empty()) throw_crash(faults, "\neverything else was removed");
}

// Locks a run that nobody alive held when its disk had no room for a lock. To make room it removes one thing: `gone`.
std::unique_ptr<DirectoryLock> lock_on_full_disk(const std::string& run, const Pruning& planned, Pruning& gone) {
  try {
    return lock_of(run);  // planning may have taken long: another process may be there by now
  } catch (const NoSpaceForLock&) {
    gone = one_of(planned);
    if (gone.leftovers.empty() && gone.steps.empty()) throw;
  }
  remove_all_of(gone, [] {});
  try {
    return lock_of(run);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + "; removed to make room for it: " +
                    (gone.steps.empty() ? gone.leftovers.front().path : gone.steps.front().step.path),
                error.code());
  }
}

// plan_pruning() that stores the newest whole step in `whole`; if `whole` is set already, that step is not read again.
Pruning planned_pruning(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
                        const BytesRead& progress, UndamagedStep& whole) {
  const std::string checkpoints = existing_checkpoints(run);
  const CheckpointSection rule = rule_of(checkpoints);
  Pruning pruning{.steps = {},
                  .leftovers = {},
                  .keep = keep.value_or(rule.keep),
                  .keep_every = keep_every.value_or(rule.keep_every)};
  for (const std::string& path : list_temporaries(checkpoints)) pruning.leftovers.push_back({path, bytes_below(path)});
  Retention retention{.keep = pruning.keep, .keep_every = pruning.keep_every};
  if (!keep_every) retention.promised_to_keep = promised_to_keep;
  std::vector<StepDirectory> doomed = superfluous_steps(checkpoints, retention, -1);
  if (doomed.empty()) return pruning;
  whole = newest_undamaged_step(checkpoints, whole, progress);
  pruning.newest_undamaged = whole.step;
  std::erase_if(doomed, [&](const StepDirectory& entry) { return entry.step == pruning.newest_undamaged; });
  for (const StepDirectory& entry : doomed) pruning.steps.push_back({entry, check_step(entry.path).bytes()});
  return pruning;
}

}  // namespace

Pruning plan_pruning(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
                     const BytesRead& progress) {
  UndamagedStep whole;
  return planned_pruning(run, keep, keep_every, progress, whole);
}

Pruning prune(const std::string& run, std::optional<int64_t> keep, std::optional<int64_t> keep_every,
              const BytesRead& progress) {
  existing_checkpoints(run);
  std::unique_ptr<DirectoryLock> lock;
  Pruning gone;
  UndamagedStep whole;
  try {
    lock = lock_of(run);
  } catch (const NoSpaceForLock&) {
    Pruning planned = planned_pruning(run, keep, keep_every, progress, whole);
    if (planned.steps.empty() && planned.leftovers.empty()) return planned;
    lock = lock_on_full_disk(run, planned, gone);
  }
  Pruning pruning = planned_pruning(run, keep, keep_every, progress, whole);
  remove_all_of(pruning, [&] {
    if (lock->look() == DirectoryLock::Hold::taken)
      throw_crash(run, ": another process has taken over this run; no further step is removed");
  });
  pruning.leftovers.insert(pruning.leftovers.begin(), gone.leftovers.begin(), gone.leftovers.end());
  pruning.steps.insert(pruning.steps.end(), gone.steps.begin(), gone.steps.end());
  return pruning;
}

}  // namespace shiftron
