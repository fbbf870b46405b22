// A file in memory without a name, mapped by raw system calls, so that ThreadSanitizer ignores its addresses.
#include "machine/cuda/nccl_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "core/check.h"

namespace shiftron::machine {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTableBytes = (sizeof(Table) + kPage - 1) / kPage * kPage;
constexpr size_t kAllBytes = kTableBytes + kMostRanks * kSeatBytes;

// Of one byte of the file for each rank; it goes with the last that the process has open of the file.
struct flock presence(int rank, int kind) {
  struct flock range {};
  range.l_type = static_cast<short>(kind);
  range.l_whence = SEEK_SET;
  range.l_start = rank;
  range.l_len = 1;
  return range;
}

}  // namespace

Segment::Segment() {
  static std::atomic<uint32_t> made = 0;
  file_ = memfd_create("machine's NCCL", MFD_CLOEXEC);
  CHECK(file_ >= 0 && ftruncate(file_, static_cast<off_t>(kAllBytes)) == 0, "memfd_create: ", std::strerror(errno));
  name_ = {getpid(), file_, uint64_t{static_cast<uint32_t>(getpid())} << 32 | ++made};
  map();
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&table_->lock, &kind);
  pthread_mutexattr_destroy(&kind);
  table_->key = name_.key;
}

Segment::Segment(const SegmentName& name) : name_(name) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", name.process, name.file);
  file_ = open(path, O_RDWR | O_CLOEXEC);
  CHECK(file_ >= 0, "NCCL's unique id: ", path, ": ", std::strerror(errno), "; its process must live on this host");
  CHECK(lseek(file_, 0, SEEK_END) == static_cast<off_t>(kAllBytes), "NCCL's unique id: ", path, " is another file");
  map();
  CHECK(table_->key == name.key, "NCCL's unique id is an old one");
}

void Segment::map() {
  const long mapped =
      syscall(SYS_mmap, nullptr, kAllBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  CHECK(mapped != -1, "mmap of a communicator's memory: ", std::strerror(errno));
  table_ = reinterpret_cast<Table*>(mapped);
  data_ = reinterpret_cast<std::byte*>(mapped) + kTableBytes;
}

Segment::~Segment() {
  if (table_ != nullptr) syscall(SYS_munmap, table_, kAllBytes);
  close(file_);
}

void Segment::forget_copies(int rank) {
  madvise(copies(rank), kSeatBytes, MADV_REMOVE);
}

void Segment::be_there(int rank) {
  struct flock range = presence(rank, F_WRLCK);
  CHECK(fcntl(file_, F_OFD_SETLK, &range) == 0, "rank ", rank, " of a communicator: ", std::strerror(errno));
}

bool Segment::is_there(int rank) {
  if (table_->seats[rank].process == getpid()) return true;
  struct flock range = presence(rank, F_WRLCK);
  CHECK(fcntl(file_, F_OFD_GETLK, &range) == 0, "rank ", rank, " of a communicator: ", std::strerror(errno));
  return range.l_type != F_UNLCK;
}

TableLock::TableLock(Table& table) : table_(table) {
  if (pthread_mutex_lock(&table_.lock) != EOWNERDEAD) return;
  pthread_mutex_consistent(&table_.lock);
  set_fault(table_, "a process died during a call");
}

void set_fault(Table& table, const std::string& text) {
  if (table.fault[0] == 0) std::snprintf(table.fault, sizeof(table.fault), "%s", text.c_str());
}

}  // namespace shiftron::machine
