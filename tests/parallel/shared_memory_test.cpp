// What ranks of one host find when they start: forbidden copies between processes, shared memory without pages.
#include "parallel/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>

namespace shiftron {
namespace {

// As a container's filter does.
void forbid_reading_of_other_processes() {
  std::array<sock_filter, 4> filter = {{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program = {.len = filter.size(), .filter = filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(9);
}

TEST(SharedMemoryTest, ForbiddenCopiesBetweenProcessesAreFound) {
  EXPECT_EXIT(
      {
        forbid_reading_of_other_processes();
        _exit(may_read_other_processes() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(SharedMemoryTest, AllowedCopiesBetweenProcessesAreFound) {
  std::ifstream scope("/proc/sys/kernel/yama/ptrace_scope");
  if (int value = 0; scope >> value && value > 1) GTEST_SKIP() << "ptrace_scope " << value;
  EXPECT_TRUE(may_read_other_processes());
}

// Writes to a page that a mapped file in `folder` no longer has: the same fault as of a full file system.
void write_to_a_missing_page(const std::string& folder) {
  std::string path = folder + "/shiftron-test-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0 || unlink(path.c_str()) != 0 || ftruncate(file, 4096) != 0) _exit(9);
  auto* const page = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  if (page == MAP_FAILED || ftruncate(file, 0) != 0) _exit(9);
  *page = 1;
  _exit(0);
}

TEST(SharedMemoryTest, FullSharedMemoryIsReported) {
  EXPECT_EXIT(
      {
        report_full_shared_memory();
        write_to_a_missing_page("/dev/shm");
      },
      ::testing::ExitedWithCode(70), "shared memory in /dev/shm is full.*df -h /dev/shm.*docker run --shm-size");
}

TEST(SharedMemoryTest, OtherBusErrorsStayWhatTheyAre) {
  EXPECT_EXIT(
      {
        report_full_shared_memory();
        write_to_a_missing_page(::testing::TempDir());
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        report_full_shared_memory();
        std::raise(SIGBUS);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace shiftron
