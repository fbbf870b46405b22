// DirectoryLock: one process at a time works in a directory, on network file systems too.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/check.h"

namespace shiftron {

// The disk, or a quota, has no room for the lock of a directory that nobody alive holds.
class NoRoomForLock : public Error {
 public:
  using Error::Error;
};

// The lock is a file DIRECTORY/.lock/N that says who holds it, made with O_EXCL, which NFS and Lustre keep where they
// do not keep flock. A holder on this host is dead when its process is; one elsewhere when its file is not touched for
// `patience` seconds by this process's own clock: no two clocks are compared. A dead holder's lock is taken over with a
// higher N; its file is removed behind that, never a living one's.
class DirectoryLock {
 public:
  struct Timing {
    double touch = 5;      // seconds between two signs of life
    double patience = 40;  // without one a holder on another host is dead
  };
  using Tell = std::function<void(const std::string& message)>;

  // `directory` must be there. Where it is held: Error(bad_input) with the holder's host, process and begin, and
  // `advice` behind it; where it cannot be written: Error(crash), on a full disk NoRoomForLock. `tell` is called before
  // it waits for a sign of life.
  DirectoryLock(const std::string& directory, const std::string& advice, const Tell& tell)
      : DirectoryLock(directory, advice, tell, Timing{}) {}
  DirectoryLock(const std::string& directory, const std::string& advice, const Tell& tell, const Timing& timing);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static constexpr const char* kName = ".lock";  // of the folder in the directory
  std::string path() const;                      // of the file that says that this process holds it

  // Whether its last holder was a process of this host that has ended; false where that cannot be seen from here.
  static bool left_by_the_dead(const std::string& directory);

  enum class Hold { held, taken, removed };
  // taken: by another process, which saw no sign of life of this one: nothing may be written. removed: by hand, or with
  // the directory, and nobody else is there now; see retake().
  Hold look() const;
  // Makes the file again that was removed, and the directory.
  void retake();

 private:
  void give_up();  // the file, which nobody touches
  bool try_to_take(const std::string& advice, const Tell& tell);
  bool create(const std::string& path);
  Hold look_unlocked() const;
  void keep_touching();

  const std::string directory_, folder_;
  const Timing timing_;
  std::string path_;     // of this process's file
  int descriptor_ = -1;  // of it
  mutable std::mutex mutex_;
  std::condition_variable leaving_;
  bool leaves_ = false;
  std::thread toucher_;
};

}  // namespace shiftron
