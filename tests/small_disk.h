// A file system of one megabyte for tests of full disks; only available if the test may mount.
#pragma once

#include <sys/mount.h>

#include "scratch.h"

namespace shiftron {

class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, "size=1m") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(scratch_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string operator/(const std::string& name) const { return scratch_ / name; }
  const std::string& path() const { return scratch_.path(); }

 private:
  Scratch scratch_;
  bool mounted_;
};

}  // namespace shiftron
