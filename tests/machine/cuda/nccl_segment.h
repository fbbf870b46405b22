// Memory that the ranks of a communicator share, whether they are threads or processes of one host: what each rank's
// stream has reached, and copies of operands. It has no name that could remain: peers find it among the open files of
// the process that created it, and it is freed with the last of them. Only included by files that are not instrumented.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "machine/cuda/nccl_call.h"

namespace shiftron::machine {

constexpr int kMostRanks = 32;
constexpr int kMostCalls = 2 * kMostRanks;        // of a group
constexpr size_t kSeatBytes = size_t{512} << 20;  // for copies of a rank's operands; untouched pages cost nothing

struct Posted {
  NcclCall call;         // its addresses mean something to its own rank alone
  size_t input, output;  // places in the rank's copies
  bool done;
};

// Of a rank.
struct Seat {
  bool taken, left;  // left: destroyed or aborted
  bool aborted;
  bool waits;  // its stream is at `posted`, and not all of it is done
  pid_t process;
  uint64_t host;  // as the process calls it
  int device;
  bool sends[kMostRanks], receives[kMostRanks];  // to and from whom its host has begun a first message
  int calls;
  Posted posted[kMostCalls];
};

// At first all zero except the lock.
struct Table {
  pthread_mutex_t lock;  // of all below
  uint64_t key;
  int ranks;
  uint64_t sums;     // drawn so far
  char fault[2048];  // the first; all later operations fail
  Seat seats[kMostRanks];
};

// What a unique id of NCCL holds.
struct SegmentName {
  pid_t process;
  int file;
  uint64_t key;  // no other segment has it
};

class Segment {
 public:
  Segment();                                  // a new one
  explicit Segment(const SegmentName& name);  // of another process; a fault where it is gone
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SegmentName name() const { return name_; }
  Table& table() { return *table_; }
  std::byte* copies(int rank) { return data_ + static_cast<size_t>(rank) * kSeatBytes; }
  void forget_copies(int rank);  // gives their pages back

  // A process that ends, however it does, is no longer there.
  void be_there(int rank);
  bool is_there(int rank);  // in this process always

 private:
  void map();
  SegmentName name_{};
  int file_ = -1;
  Table* table_ = nullptr;
  std::byte* data_ = nullptr;
};

// The table's, while it lives. Where a process died with it in its hands, that is the fault.
class TableLock {
 public:
  explicit TableLock(Table& table);
  ~TableLock() { pthread_mutex_unlock(&table_.lock); }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

 private:
  Table& table_;
};

void set_fault(Table& table, const std::string& text);  // unless there is one

}  // namespace shiftron::machine
