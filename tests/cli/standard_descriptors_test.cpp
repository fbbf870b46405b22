// Descriptors 0 to 2 are in use before a file can get their numbers.
#include "cli/standard_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace shiftron::cli {
namespace {

// In a process where the descriptors in `closed`, a bit each, are closed: 0, or the number of what is not as it should
// be.
int fault_where(unsigned closed) {
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if ((closed >> descriptor & 1) != 0) close(descriptor);
  }
  open_standard_descriptors();
  if (open("/dev/null", O_RDONLY) < 3) return 1;
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if ((closed >> descriptor & 1) == 0) continue;
    const bool is_written = write(descriptor, "x", 1) == 1;
    if (is_written != (descriptor == STDERR_FILENO)) return 2 + descriptor;
  }
  return 0;
}

TEST(StandardDescriptors, AreOpenWhicheverWereClosed) {
  for (unsigned closed = 0; closed < 8; ++closed) {
    const pid_t child = fork();
    if (child == 0) _exit(fault_where(closed));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "closed: " << closed;
  }
}

}  // namespace
}  // namespace shiftron::cli
