// Step directories of a run: names, which are valid, which are kept.
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
  std::string state;  // changes with its manifest, and with the names beside it
  bool was_to_stay = false;
};
using KnownSteps = std::map<std::string, KnownStep>;  // by path

// Which steps stay: the `keep` newest valid ones, every step that `keep_every` divides, and what `was_to_stay` names.
struct Retention {
  int64_t keep = 2;                                             // at least 1
  int64_t keep_every = 0;                                       // 0 = none
  std::function<bool(const Manifest& manifest)> was_to_stay{};  // true: this step, for a reason of its own
  KnownSteps* known = nullptr;  // of all calls with this rule: what stands there is not read again
};

struct StepDirectory {
  int64_t step = 0;
  std::string path;
};

inline const char* const kManifestName = "manifest.json";
inline const char* const kTokenizerName = "tokenizer.model";
inline constexpr uint64_t kLargestManifest = uint64_t{256} << 20;  // bytes, of one that is read

std::string step_name(int64_t step);  // "step-00000500"

// Nothing is ever written into a step: throws Error(bad_input) where `directory`, there or not, lies in one.
void refuse_inside_a_step(const std::string& directory);

// Committed steps, valid or not, newest first; a missing directory has none. Throws SystemError where a link to it
// leads nowhere.
std::vector<StepDirectory> list_steps(const std::string& directory);

// Whether the last part of the path is named as a step is.
bool is_step_name(const std::string& path);

// Whether the folder of steps is there and nothing in it has the step's name: a step that was there was removed or
// renamed.
bool step_has_gone(const std::string& step_directory);

// Says so of a step that a command reads, with the newest one that is there: Error(no_checkpoint).
[[noreturn]] void throw_step_has_gone(const std::string& step_directory);

// For callers that report an Error met in reading a step as a fault of the step: throws where it is none, because the
// machine refused (SystemError, crash) or the step has gone, as retention of a running training removes steps.
void pass_on_other_than_faults(const std::string& step_directory, const Error& error);

// "PATH could not be read, which says nothing of its content: REASON", with the commands that help: for a run that
// would resume from it. No older step is taken in its place, which would lose the steps between.
std::string unreadable_step(const std::string& step_directory, const std::string& reason);

// The manifest, parsed and checked, tiling included. Throws Error(no_checkpoint), as all readers of a step do; where it
// cannot be read or has gone, as pass_on_other_than_faults().
Manifest read_manifest(const std::string& step_directory);

// Empty where the file is there with its size; else the fault with the file and the tensors that are lost.
std::string file_fault(const std::string& step_directory, const Manifest& manifest, int file);
std::string first_file_fault(const std::string& step_directory, const Manifest& manifest);  // of all files

// The fast check: manifest whole and sound, every file there with its size. Throws Error(no_checkpoint) naming the
// file.
Manifest check_step(const std::string& step_directory);

// Bytes of all files of a step, its manifest among them.
uint64_t bytes_of_step(const std::string& step_directory);

// What a save or a removal left that was interrupted, or is under way: the paths of step-S.tmp and trash-…, in order. A
// missing directory has none.
std::vector<std::string> list_temporaries(const std::string& directory);

// Removes what interrupted saves and removals left; what cannot be removed is a warning. Only while no save is running.
void sweep_temporaries(const std::string& directory, Log& log);

// The valid steps that `keep` does not name, newest first; `saved`, which has just been verified, stays, −1 = none.
// Steps that are not valid are neither counted nor named.
std::vector<StepDirectory> superfluous_steps(const std::string& directory, const Retention& keep, int64_t saved);

// Renames the step to trash-… and removes it. Tests follow it by `at_point`.
void remove_step(const StepDirectory& entry, const std::function<void(const std::string& point)>& at_point = {});

// Removes the superfluous_steps(); each is renamed to trash-… first. What cannot be removed is a warning. Tests
// follow it by `at_point`.
void apply_retention(const std::string& directory, const Retention& keep, int64_t saved, Log& log,
                     const std::function<void(const std::string& point)>& at_point = {});

// Renames the steps behind `step` to superseded-…; used when training goes on from an older step. Rank 0 only.
std::vector<int64_t> supersede_later_steps(const std::string& directory, int64_t step, Log& log);

// Renames step_directory to `prefix`step-S, with a number behind it where that is taken. Returns the new path.
std::string set_aside(const std::string& step_directory, const std::string& prefix);

}  // namespace shiftron
