// Step directories of a run: their names, which are valid, which are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/log.h"

namespace shiftron {

// A valid step as it was when it was read.
struct KnownStep {
  std::string state;  // changes with its manifest and with the names in its directory
  bool promised_to_keep = false;
};
using KnownSteps = std::map<std::string, KnownStep>;  // by path

// Which steps are kept: the `keep` newest valid ones, every multiple of `keep_every`, and those that `promised_to_keep`
// names.
struct Retention {
  int64_t keep = 2;                                                  // at least 1
  int64_t keep_every = 0;                                            // 0 = none
  std::function<bool(const Manifest& manifest)> promised_to_keep{};  // true: keep it for another reason
  KnownSteps* known = nullptr;  // shared by all calls with this rule: steps in it are not read again
};

struct StepDirectory {
  int64_t step = 0;
  std::string path;
};

inline const char* const kManifestName = "manifest.json";
inline constexpr uint64_t kLargestManifest = uint64_t{256} << 20;  // bytes, of one that is read

std::string step_name(int64_t step);  // "step-00000500"

// Nothing is ever written into a step: throws Error(bad_input) if `directory`, which need not exist, lies in one.
void refuse_inside_a_step(const std::string& directory);

// Committed steps, valid or not, newest first; a missing directory has none. Throws SystemError if it is missing
// because a link leads nowhere.
std::vector<StepDirectory> list_steps(const std::string& directory);

// Whether the last part of the path is the name of a step.
bool is_step_name(const std::string& path);

// Whether the folder of steps exists but holds nothing with the step's name: the step was removed or renamed.
bool step_was_removed(const std::string& step_directory);

// Reports that for a step that a command reads, and names the newest step there: Error(no_checkpoint).
[[noreturn]] void throw_step_was_removed(const std::string& step_directory);

// For callers that report an Error from reading a step as a fault of the step: throws if it is not one, because the
// machine failed (SystemError, crash) or because the step has gone, as retention of a running training removes steps.
void rethrow_unless_step_fault(const std::string& step_directory, const Error& error);

// "PATH could not be read, which says nothing of its content: REASON", with the commands that help: for a run that
// would resume from it. No older step is used instead, because that would lose the steps in between.
std::string unreadable_step(const std::string& step_directory, const std::string& reason);

// The manifest, parsed and checked, tiling included. Throws Error(no_checkpoint), as all readers of a step do; if it
// cannot be read or has gone, throws like rethrow_unless_step_fault().
Manifest read_manifest(const std::string& step_directory);

// Empty if the file exists with its size; otherwise the fault, with the file and the tensors that are lost.
std::string file_fault(const std::string& step_directory, const Manifest& manifest, int file);
std::string first_file_fault(const std::string& step_directory, const Manifest& manifest);  // of all files

// The fast check: the manifest is complete and valid, every file exists with its size. Throws Error(no_checkpoint)
// naming the file.
Manifest check_step(const std::string& step_directory);

// Bytes of all files of a step, including its manifest.
uint64_t bytes_of_step(const std::string& step_directory);

// Paths of step-S.tmp and trash-…, in order: what saves and removals left that were interrupted or are still running. A
// missing directory has none.
std::vector<std::string> list_temporaries(const std::string& directory);

// Removes what interrupted saves and removals left; what cannot be removed is a warning. Call only while no save is
// running.
void sweep_temporaries(const std::string& directory, Log& log);

// The valid steps that `keep` does not keep, newest first. `saved` (−1 = none), which has just been verified, stays.
// Invalid steps are neither counted nor returned.
std::vector<StepDirectory> superfluous_steps(const std::string& directory, const Retention& keep, int64_t saved);

// Renames the step to trash-… and removes it. Tests observe it through `at_point`.
void remove_step(const StepDirectory& entry, const std::function<void(const std::string& point)>& at_point = {});

// Removes the superfluous_steps(); each is renamed to trash-… first. What cannot be removed is a warning. Tests observe
// it through `at_point`.
void apply_retention(const std::string& directory, const Retention& keep, int64_t saved, Log& log,
                     const std::function<void(const std::string& point)>& at_point = {});

// Renames the steps after `step` to superseded-…; used when training resumes from an older step. Rank 0 only.
std::vector<int64_t> supersede_later_steps(const std::string& directory, int64_t step, Log& log);

// Renames step_directory to `prefix`step-S, with a number appended if that is taken. Returns the new path.
std::string set_aside(const std::string& step_directory, const std::string& prefix);

}  // namespace shiftron
