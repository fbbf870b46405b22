// NewRun: the directory of a run that a conversion or an import makes out of nothing.
#pragma once

#include <memory>
#include <string>

#include "core/directory_lock.h"
#include "core/log.h"

namespace shiftron {

// One process at a time works there. Until done() nothing of it is left where it was not there before, and no step ever.
class NewRun {
 public:
  // Takes what an interrupted command left too. Error(bad_input): in use, by whom; not writable; steps are there.
  NewRun(const std::string& directory, Log& log);
  ~NewRun();
  NewRun(const NewRun&) = delete;
  NewRun& operator=(const NewRun&) = delete;

  std::string checkpoints() const { return directory_ + "/checkpoints"; }
  std::string config_file() const { return directory_ + "/config.conf"; }
  // Directly before the step gets its name. Error(bad_input) where another configuration is there.
  void require_config(const std::string& text) const;
  void write_config(const std::string& text);
  void done() { done_ = true; }

 private:
  bool is_known_to_be_empty() const noexcept;

  const std::string directory_;
  const bool was_there_;
  bool made_config_ = false, done_ = false;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace shiftron
