// NewRun: the directory of a run that a conversion or an import makes out of nothing.
#pragma once

#include <memory>
#include <string>

#include "core/directory_lock.h"
#include "core/log.h"

namespace shiftron {

// One process at a time works there. Until done() nothing of it is left where it was not there before, and no step
// ever. While it works, DIRECTORY/made-for says which request it serves: a command that is killed after its step got
// its name can be given again.
class NewRun {
 public:
  // Takes what an interrupted command left too. `request`: a line that differs where other inputs or options do.
  // Error(bad_input): in use, by whom; not writable; steps are there.
  NewRun(const std::string& directory, const std::string& request, Log& log);
  ~NewRun();
  NewRun(const NewRun&) = delete;
  NewRun& operator=(const NewRun&) = delete;

  // The step of a command of the same request, which was killed after it had made it; "" where there is none.
  const std::string& made_before() const { return made_before_; }

  void begin();  // where nothing was made before: writes which request it serves
  std::string checkpoints() const { return directory_ + "/checkpoints"; }
  std::string config_file() const { return directory_ + "/config.conf"; }
  // Directly before the step gets its name. Error(bad_input) where another configuration is there.
  void require_config(const std::string& text) const;
  void write_config(const std::string& text);
  void done() { done_ = true; }

 private:
  bool is_known_to_be_empty() const noexcept;
  std::string request_file() const { return directory_ + "/made-for"; }
  std::string step_made_before() const;

  const std::string directory_, request_;
  const bool was_there_;
  std::string made_before_;
  bool made_config_ = false, done_ = false;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace shiftron
