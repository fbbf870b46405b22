// DirectoryLock: only one process at a time works in a directory, also on network file systems.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/check.h"

namespace shiftron {

// No room on the disk, or in the quota, for the lock of a directory that no live process holds.
class NoSpaceForLock : public Error {
 public:
  using Error::Error;
};

// The lock is a file DIRECTORY/.lock/N that names its holder. It is created with O_EXCL, which NFS and Lustre support
// even where they do not support flock. A holder on this host is dead if its process is; one on another host is dead if
// its file is not touched for `patience` seconds by this process's own clock (clocks of two hosts are never compared).
// A dead holder's lock is taken over with a higher N, and then its file is removed; a live holder's file never is.
class DirectoryLock {
 public:
  struct Timing {
    double touch = 5;      // seconds between two touches of the file
    double patience = 40;  // without a touch for so long, a holder on another host is dead
  };
  using Notify = std::function<void(const std::string& message)>;

  // `directory` must exist. If it is held: Error(bad_input) with the holder's host, process and start time, followed by
  // `advice`. If it cannot be written: Error(crash), on a full disk NoSpaceForLock. `notify` is called before a longer
  // wait for a touch.
  DirectoryLock(const std::string& directory, const std::string& advice, const Notify& notify)
      : DirectoryLock(directory, advice, notify, Timing{}) {}
  DirectoryLock(const std::string& directory, const std::string& advice, const Notify& notify, const Timing& timing);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static constexpr const char* kName = ".lock";  // of the folder in the directory
  std::string path() const;                      // of this process's lock file

  // Whether the last holder was a process of this host that has ended; false if that cannot be determined from here.
  static bool has_dead_holder(const std::string& directory);

  enum class Hold { held, taken, removed };
  // taken: by another process, which saw no touch by this one; nothing may be written. removed: somebody deleted the
  // lock or the directory, and no other process holds it; see retake().
  Hold look() const;
  // Creates the removed file again, and the directory if needed.
  void retake();

 private:
  void give_up();  // removes the file; the toucher must have ended
  bool try_acquire(const std::string& advice, const Notify& notify);
  bool create(const std::string& path);
  Hold look_unlocked() const;
  void keep_touching();

  const std::string directory_, folder_;
  const Timing timing_;
  std::string path_;     // this process's file
  int descriptor_ = -1;  // of that file
  mutable std::mutex mutex_;
  std::condition_variable leaving_;
  bool leaves_ = false;
  std::thread toucher_;
};

}  // namespace shiftron
