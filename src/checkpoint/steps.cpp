// Listing, checking, keeping and removing step directories.
#include "checkpoint/steps.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "core/shell_word.h"
#include "core/system_error.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 8;

// The step of "step-00000500".
std::optional<int64_t> step_of(const std::string& name) {
  constexpr size_t kPrefix = 5;  // "step-"
  if (name.rfind("step-", 0) != 0 || name.size() < kPrefix + kDigits || name.size() > kPrefix + 15) return {};
  if (!std::all_of(name.begin() + kPrefix, name.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
  const int64_t step = std::stoll(name.substr(kPrefix));
  return step_name(step) == name ? std::optional(step) : std::nullopt;
}

bool is_temporary(const std::string& name) {
  const std::string end = ".tmp";
  if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
    return step_of(name.substr(0, name.size() - end.size())).has_value();
  }
  return name.rfind("trash-step-", 0) == 0;
}

std::string without_slashes_at_end(const std::string& path) {
  return path.substr(0, path.find_last_not_of('/') + 1);
}

std::string file_name(const std::string& path) {
  return fs::path(without_slashes_at_end(path)).lexically_normal().filename().string();
}

// A text that changes with the step's manifest and with the names in its directory; "" without a manifest.
std::string state_of(const std::string& step_directory) {
  std::string state;
  for (const std::string& path : {step_directory, step_directory + "/" + kManifestName}) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return "";
    for (const int64_t part :
         {static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
          static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec)}) {
      state += std::to_string(part) + " ";
    }
  }
  return state;
}

// ": parameters/a and 3 more are lost" for the boxes of `file` that end after its first `bytes` bytes.
std::string lost(const Manifest& manifest, int file, uint64_t bytes) {
  std::string first;
  int more = 0;
  for (const ManifestBox& box : manifest.boxes) {
    if (box.file != file || box.byte_offset + box.bytes <= bytes) continue;
    if (first.empty()) {
      first = manifest.dataset(box);
    } else {
      ++more;
    }
  }
  if (first.empty()) return "";
  return ": " + first + (more == 0 ? " is" : " and " + std::to_string(more) + " more are") + " lost";
}

}  // namespace

std::string step_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(digits.size() < kDigits ? kDigits - digits.size() : 0, '0') + digits;
}

void refuse_inside_a_step(const std::string& directory) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(fs::absolute(directory), ignored);
  for (fs::path above = whole; above.has_relative_path(); above = above.parent_path()) {
    if (!step_of(above.filename().string()) || !fs::exists(above / kManifestName, ignored)) continue;
    throw_bad_input(directory, " is inside the checkpoint step ", above.string(),
                    ", which must not change; choose another directory");
  }
}

std::vector<StepDirectory> list_steps(const std::string& directory) {
  std::vector<StepDirectory> steps;
  refuse_lost_link(directory);
  if (!fs::is_directory(directory)) return steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (const auto step = step_of(name)) steps.push_back({*step, directory + "/" + name});
  }
  std::sort(steps.begin(), steps.end(), [](const StepDirectory& a, const StepDirectory& b) { return a.step > b.step; });
  return steps;
}

bool is_step_name(const std::string& path) {
  return step_of(file_name(path)).has_value();
}

bool step_was_removed(const std::string& step_directory) {
  const std::string step = without_slashes_at_end(step_directory);
  struct stat status {};
  return ::lstat(step.c_str(), &status) != 0 && errno == ENOENT && ::stat(parent_directory(step).c_str(), &status) == 0;
}

void throw_step_was_removed(const std::string& step_directory) {
  std::string newest;
  const auto steps = list_steps(parent_directory(without_slashes_at_end(step_directory)));
  if (!steps.empty()) {
    newest = "; the newest step is " + steps.front().path;
  }
  throw Error(step_directory +
                  " does not exist, or no longer: a running training removes old steps; use another step, or raise "
                  "checkpoint.keep" +
                  newest,
              ExitCode::no_checkpoint);
}

void rethrow_unless_step_fault(const std::string& step_directory, const Error& error) {
  if (step_was_removed(step_directory)) throw_step_was_removed(step_directory);  // NFS reports ESTALE for its files
  rethrow_system_error(error);
}

std::string unreadable_step(const std::string& step_directory, const std::string& reason) {
  const std::string step = without_slashes_at_end(step_directory);
  return step + " could not be read, but its content may be valid: " + reason +
         "\nstart again when it can be read; to resume from an older step, move this one away first: mv " +
         shell_word(step) + " " + shell_word(step + ".unreadable");
}

Manifest read_manifest(const std::string& step_directory) {
  const std::string path = step_directory + "/" + kManifestName;
  std::string text;
  try {
    text = read_file(path, kLargestManifest);
  } catch (const Error& error) {
    rethrow_unless_step_fault(step_directory, error);
    throw Error(error.what(), ExitCode::no_checkpoint);
  }
  Manifest manifest = parse_manifest(text, path);
  check_tiling(manifest, path);
  check_state(manifest, path);
  const auto named = step_of(file_name(step_directory));
  if (named && *named != manifest.step) {
    throw Error(path + ": holds step " + std::to_string(manifest.step) + ", but its directory is named for step " +
                    std::to_string(*named),
                ExitCode::no_checkpoint);
  }
  return manifest;
}

std::string file_fault(const std::string& step_directory, const Manifest& manifest, int file) {
  const ManifestFile& stated = manifest.files[static_cast<size_t>(file)];
  const std::string path = step_directory + "/" + stated.name;
  try {
    const uint64_t bytes = FileDescriptor::open_for_reading(path).size();
    if (bytes == stated.bytes) return "";
    return path + ": has " + std::to_string(bytes) + " bytes, but the manifest states " + std::to_string(stated.bytes) +
           lost(manifest, file, bytes);
  } catch (const Error& error) {
    rethrow_unless_step_fault(step_directory, error);
    return error.what() + lost(manifest, file, 0);
  }
}

std::string first_file_fault(const std::string& step_directory, const Manifest& manifest) {
  std::string fault;
  for (size_t i = 0; i < manifest.files.size() && fault.empty(); ++i) {
    fault = file_fault(step_directory, manifest, static_cast<int>(i));
  }
  return fault;
}

Manifest check_step(const std::string& step_directory) {
  Manifest manifest = read_manifest(step_directory);
  const std::string fault = first_file_fault(step_directory, manifest);
  if (!fault.empty()) throw Error(fault, ExitCode::no_checkpoint);
  return manifest;
}

uint64_t bytes_of_step(const std::string& step_directory) {
  return check_step(step_directory).bytes() + fs::file_size(step_directory + "/" + kManifestName);
}

std::vector<std::string> list_temporaries(const std::string& directory) {
  std::vector<std::string> found;
  if (!fs::is_directory(directory)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_temporary(name)) found.push_back(directory + "/" + name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void sweep_temporaries(const std::string& directory, Log& log) {
  for (const std::string& path : list_temporaries(directory)) {
    try {
      fs::remove_all(path);
      log.info("removed the remains of an interrupted save or removal: " + path);
    } catch (const fs::filesystem_error& error) {
      log.warning("cannot remove the remains of an interrupted save or removal: " +
                  std::string(as_error(error).what()));
    }
  }
}

std::vector<StepDirectory> superfluous_steps(const std::string& directory, const Retention& keep, int64_t saved) {
  const KnownStep verified{};
  KnownSteps of_this_call;
  KnownSteps& known = keep.known != nullptr ? *keep.known : of_this_call;
  const auto find = [&](const StepDirectory& entry) -> const KnownStep* {
    const std::string state = state_of(entry.path);
    const auto found = known.find(entry.path);
    if (found != known.end() && found->second.state == state) return &found->second;
    Manifest manifest;
    try {
      manifest = check_step(entry.path);
    } catch (const Error&) {
      return nullptr;
    }
    KnownStep& step = known[entry.path];
    step = {.state = state, .promised_to_keep = keep.promised_to_keep && keep.promised_to_keep(manifest)};
    return &step;
  };
  const int64_t newest = std::max<int64_t>(keep.keep, 1);
  int64_t kept = 0;
  std::vector<StepDirectory> doomed;
  const std::vector<StepDirectory> steps = list_steps(directory);
  // Reads only as many as needed: a manifest of many ranks takes a second, and all ranks wait.
  if (static_cast<int64_t>(steps.size()) <= newest) return doomed;
  for (const StepDirectory& entry : steps) {
    const bool stays = entry.step == saved || (keep.keep_every > 0 && entry.step % keep.keep_every == 0);
    if (kept >= newest && stays) continue;
    const KnownStep* step = entry.step == saved ? &verified : find(entry);
    if (step == nullptr) continue;
    if (kept < newest) {
      ++kept;
    } else if (!step->promised_to_keep) {
      doomed.push_back(entry);
    }
  }
  return doomed;
}

void remove_step(const StepDirectory& entry, const std::function<void(const std::string& point)>& at_point) {
  const std::string trash = set_aside(entry.path, "trash-");
  if (at_point) at_point("old step renamed");
  fs::remove_all(trash);
  if (at_point) at_point("old step removed");
}

void apply_retention(const std::string& directory, const Retention& keep, int64_t saved, Log& log,
                     const std::function<void(const std::string& point)>& at_point) {
  const auto notify = [&](const std::exception& error) {
    log.warning(std::string("cannot remove old checkpoints: ") + as_error(error).what());
  };
  try {
    for (const StepDirectory& entry : superfluous_steps(directory, keep, saved)) {
      try {
        remove_step(entry, at_point);
        log.info("removed " + entry.path + ": checkpoint.keep is " + std::to_string(std::max<int64_t>(keep.keep, 1)));
      } catch (const fs::filesystem_error& error) {
        notify(error);
      }
    }
  } catch (const std::exception& error) {
    notify(error);
  }
}

std::vector<int64_t> supersede_later_steps(const std::string& directory, int64_t step, Log& log) {
  std::vector<int64_t> renamed;
  for (const StepDirectory& entry : list_steps(directory)) {
    if (entry.step <= step) break;
    const std::string path = set_aside(entry.path, "superseded-");
    log.warning("training resumes from step " + std::to_string(step) + ": " + entry.path + " is now " + path);
    renamed.push_back(entry.step);
  }
  return renamed;
}

std::string set_aside(const std::string& step_directory, const std::string& prefix) {
  const std::string base = parent_directory(step_directory) + "/" + prefix + file_name(step_directory);
  std::string path = base;
  for (int i = 2; fs::exists(fs::symlink_status(path)); ++i) path = base + "." + std::to_string(i);
  rename_durably(step_directory, path);
  return path;
}

}  // namespace shiftron
