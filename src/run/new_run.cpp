// Files are removed only under the lock, and only if there is no step: another process may have been first.
#include "run/new_run.h"

#include <filesystem>

#include "checkpoint/steps.h"
#include "config/config_text.h"
#include "config/run_config.h"
#include "core/check.h"
#include "core/file.h"
#include "run/run_files.h"

namespace shiftron {

namespace fs = std::filesystem;

constexpr uint64_t kLongestRequest = 4096;  // bytes

NewRun::NewRun(const std::string& directory, const std::string& request, Log& log)
    : directory_(directory),
      request_(request),
      was_there_(fs::exists(fs::symlink_status(directory))),
      lock_(open_run(directory, log, {.option = "--output", .advice = "wait for it, or choose another --output"})) {
  const std::vector<StepDirectory> steps = list_steps(checkpoints());
  existing_step_ = find_existing_step();
  if (!existing_step_.empty()) return;
  if (!steps.empty()) {
    throw_bad_input(steps.front().path, " already exists and is not overwritten; choose another --output");
  }
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name == DirectoryLock::kName || entry.path() == checkpoints() || entry.path() == config_file()) continue;
    if (entry.path() == request_file()) continue;
    throw_bad_input("--output ", directory, " already contains ", name,
                    ", which is not left from an interrupted run of this command; choose a new directory");
  }
}

void NewRun::begin() {
  write_file_durably(request_file(), request_);
}

// The only step, if it was made for this request; throws if it is damaged.
std::string NewRun::find_existing_step() const {
  const std::vector<StepDirectory> steps = list_steps(checkpoints());
  if (steps.size() != 1 || !fs::exists(request_file())) return "";
  if (read_file(request_file(), kLongestRequest) != request_) return "";
  check_step(steps.front().path);
  return steps.front().path;
}

NewRun::~NewRun() {
  std::error_code ignored;
  if (existing_step_.empty() || done_) fs::remove(request_file(), ignored);
  if (!done_ && is_known_to_be_empty()) {
    if (made_config_) fs::remove(config_file(), ignored);
    if (!was_there_) fs::remove_all(checkpoints(), ignored);
  }
  lock_.reset();
  if (was_there_) return;
  fs::remove(directory_ + "/" + DirectoryLock::kName, ignored);  // both are removed only if empty
  fs::remove(directory_, ignored);
}

bool NewRun::is_known_to_be_empty() const noexcept {
  try {
    return list_steps(checkpoints()).empty();
  } catch (const std::exception&) {  // the disk may have failed: nothing is removed
    return false;
  }
}

void NewRun::require_config(const std::string& text) const {
  if (fs::exists(config_file()) && read_file(config_file(), kLargestConfiguration) != text) {
    throw_bad_input(config_file(), " belongs to another run; choose another --output");
  }
}

void NewRun::write_config(const std::string& text) {
  made_config_ = true;
  write_file_durably(config_file(), text);
}

}  // namespace shiftron
