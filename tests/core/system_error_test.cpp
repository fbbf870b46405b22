// Which errors are not about a file.
#include "core/system_error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <set>

namespace shiftron {
namespace {

// File systems of a network tell many things: Lustre ESHUTDOWN, FUSE ENOTCONN, NFS ETIMEDOUT.
TEST(SystemErrors, AllThatSpeaksNeitherOfThePathNorOfRoomIsOfTheSystem) {
  const std::set<int> others = {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EEXIST, EISDIR,
                                ENXIO,  EINVAL,  EROFS, ENOSPC,       EDQUOT, EFBIG};
  for (int error = 1; error < 134; ++error) {
    EXPECT_EQ(is_system_error(error), others.count(error) == 0) << std::strerror(error);
  }
  for (const int error : {ESHUTDOWN, ENOTCONN, ETIMEDOUT}) {
    EXPECT_NE(std::string(advice_on(error)).find("start again"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace shiftron
