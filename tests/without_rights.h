// A process that permissions restrict, even if root, which they do not restrict, runs the tests.
#pragma once

#include <unistd.h>

#include <filesystem>

namespace shiftron {

// While it exists, root's files belong to somebody else. Not to be used with threads that need rights.
class WithoutRights {
 public:
  WithoutRights() {
    constexpr uid_t kNobody = 65534;
    if (was_root_) changed_ = ::seteuid(kNobody) == 0;
  }
  ~WithoutRights() {
    if (changed_) changed_ = ::seteuid(0) != 0;
  }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;
  bool holds() const { return changed_ || !was_root_; }

 private:
  bool was_root_ = ::geteuid() == 0;
  bool changed_ = false;
};

// What lies in it may be removed and added by everybody, or by nobody.
inline void open_to_all(const std::filesystem::path& directory, bool is_open) {
  using std::filesystem::perms;
  const perms reads = perms::owner_read | perms::owner_exec | perms::group_read | perms::group_exec | perms::others_read |
                      perms::others_exec;
  std::filesystem::permissions(
      directory, is_open ? reads | perms::owner_write | perms::group_write | perms::others_write : reads);
}

}  // namespace shiftron
