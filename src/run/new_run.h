// NewRun: the directory of a run that a conversion or an import creates.
#pragma once

#include <memory>
#include <string>

#include "core/directory_lock.h"
#include "core/log.h"
#include "run/run_files.h"

namespace shiftron {

// Only one process at a time works there. A command that fails leaves no step, and nothing if the directory did not
// exist before. DIRECTORY/made-for holds the request until the command is done, so that a command that was killed after
// its step got its name can be repeated.
class NewRun {
 public:
  // Also accepts what an interrupted command left. `request`: a line that differs for different inputs or options.
  // Error(bad_input): in use, by whom; not writable; it holds steps.
  NewRun(const std::string& directory, const std::string& request, Log& log);
  ~NewRun();
  NewRun(const NewRun&) = delete;
  NewRun& operator=(const NewRun&) = delete;

  // The step that an earlier, killed command of the same request had made; "" if there is none.
  const std::string& existing_step() const { return existing_step_; }

  void begin();  // if nothing was made before: writes made-for
  std::string checkpoints() const { return checkpoints_of(directory_); }
  std::string config_file() const { return directory_ + "/config.conf"; }
  // Error(bad_input) if another configuration exists there.
  void require_config(const std::string& text) const;
  void write_config(const std::string& text);  // call it directly before the step gets its name
  void done() { done_ = true; }

 private:
  bool is_known_to_be_empty() const noexcept;
  std::string request_file() const { return directory_ + "/made-for"; }
  std::string find_existing_step() const;

  const std::string directory_, request_;
  const bool was_there_;
  std::string existing_step_;
  bool made_config_ = false, done_ = false;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace shiftron
