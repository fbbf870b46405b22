// The probe reads one word of a child. The handler uses only system calls.
#include "parallel/shared_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "core/check.h"

namespace shiftron {
namespace {

constexpr std::string_view kFolder = "/dev/shm/";
constexpr std::string_view kReport =
    "\nshiftron: the shared memory in /dev/shm is full: ranks of one host exchange messages through it; df -h /dev/shm "
    "shows its size. Remove unused files there, or make it larger: docker run --shm-size=1g, "
    "mount -o remount,size=1g /dev/shm\n";

// A line of /proc/self/maps: "begin-end rwxp offset device inode   path".
bool is_shared_memory_at(std::string_view line, uintptr_t address) {
  uintptr_t begin = 0, end = 0;
  const char* const last = line.data() + line.size();
  const auto [dash, no_begin] = std::from_chars(line.data(), last, begin, 16);
  if (no_begin != std::errc() || dash == last) return false;
  const auto [rest, no_end] = std::from_chars(dash + 1, last, end, 16);
  return no_end == std::errc() && begin <= address && address < end && line.find(kFolder) != line.npos;
}

bool is_in_shared_memory(uintptr_t address) {
  const int file = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char line[512];  // the beginning of a longer line
  size_t length = 0;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(file, buffer, sizeof buffer)) > 0;) {
    for (const char letter : std::string_view(buffer, static_cast<size_t>(got))) {
      if (letter != '\n') {
        if (length < sizeof line) line[length++] = letter;
        continue;
      }
      if (is_shared_memory_at({line, length}, address)) return true;  // the process ends: the file stays open
      length = 0;
    }
  }
  ::close(file);
  return false;
}

void on_bus_error(int number, siginfo_t* info, void*) {
  if (info->si_code == BUS_ADRERR && is_in_shared_memory(reinterpret_cast<uintptr_t>(info->si_addr))) {
    static_cast<void>(::write(STDERR_FILENO, kReport.data(), kReport.size()) + 1);
    ::_exit(static_cast<int>(ExitCode::crash));
  }
  std::signal(number, SIG_DFL);  // the access is repeated, or a signal that was sent is raised again
  if (info->si_code <= 0) std::raise(number);
}

}  // namespace

bool may_read_other_processes() {
  static int word = 0;
  int life[2];
  if (::pipe2(life, O_CLOEXEC) != 0) return true;
  const pid_t child = ::fork();
  if (child == 0) {  // waits for the end of the pipe, even if this process is killed
    ::close(life[1]);
    char end = 0;
    ::_exit(::read(life[0], &end, 1) < 0 ? 1 : 0);
  }
  bool may = true;
  if (child > 0) {
    int copy = 0;
    const iovec here = {&copy, sizeof copy};
    const iovec there = {&word, sizeof word};
    may = ::process_vm_readv(child, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof copy);
  }
  ::close(life[0]);
  ::close(life[1]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return may;
}

void report_full_shared_memory() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace shiftron
