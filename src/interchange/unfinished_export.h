// UnfinishedExport: an export gets its final name only when it is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/file_lock.h"

namespace shiftron {

// The directory NAME.tmp, at first empty except for a mark file, which is locked: of two concurrent exports the later
// one is refused. What a killed export left is swept: a marked NAME.tmp, even if NAME itself is complete; an empty
// NAME.tmp; or a NAME that still has the mark. The destructor removes what was not finished. An export that was killed
// before it printed its result can be repeated with the same command.
class UnfinishedExport {
 public:
  // `named`: the final directory or file, called NAME here; trailing slashes are dropped. Makes its parent folders,
  // durably. Throws Error(bad_input) if NAME exists or would lie in a step, if NAME.tmp is something else, or if
  // another export is running.
  explicit UnfinishedExport(const std::string& named);
  ~UnfinishedExport();
  UnfinishedExport(const UnfinishedExport&) = delete;
  UnfinishedExport& operator=(const UnfinishedExport&) = delete;

  const std::string& name() const { return name_; }
  const std::string& directory() const { return temporary_; }  // to write in
  static bool is_mark(const std::string& file);                // a file of directory() that is not part of the export
  // Renames the directory to NAME, calls `notify`, which is to report the result, then removes the mark. Durable;
  // throws Error(crash), or Error(bad_input) if something else has taken the name.
  void finish(const std::function<void()>& notify = {});
  // Like finish(), for a single file of the directory.
  void finish_file(const std::string& file, const std::function<void()>& notify = {});

 private:
  void take();            // makes the directory and its mark
  void take_back();       // renames a NAME that still has its mark to NAME.tmp
  bool take_back_file();  // the same for a file, known by its number_of() in NAME.tmp; false if it is not one
  void sweep();           // removes all but the mark
  void remove();          // removes all, the mark last
  void remove_remains();  // removes a NAME.tmp that was left although NAME is complete

  const std::string name_, temporary_;
  std::optional<FileLock> lock_;
};

// Throws Error(crash) if the disk of `directory` has less room than `bytes`, the part of an export's size that is
// known.
void require_space_for_export(const std::string& directory, uint64_t bytes);

}  // namespace shiftron
