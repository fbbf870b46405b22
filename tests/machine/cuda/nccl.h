// How the emulated NCCL behaves where NCCL promises nothing, and ranks that are lost.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shiftron::machine {

struct NcclOptions {
  uint64_t seed = 0;              // of the order in which ranks are added, drawn for every sum and communicator
  bool fixed_sums = false;        // that order follows from the devices and the number of elements, as NCCL's does
  bool rounds_every_sum = false;  // bfloat16 sums are rounded after every rank, as in a ring
  int lost_rank = -1;             // of every communicator: its operations begin and never finish
  bool loss_is_told = false;      // to communicators of the other ranks, by ncclCommGetAsyncError; where a process
                                  // ends it always is
  // Bytes of the device that a connection of one channel takes: the buffers of NCCL 2.28's three protocols. 0: no
  // communicator takes any.
  size_t memory_of_connection = (size_t{512} << 10) + 4'915'200 + (size_t{4} << 20);
  const char* refusal = nullptr;  // the reason given if a communicator is not created, in a system error
  double patience = 20;           // seconds in which a rank that makes a communicator waits for the others
};

// Of communicators that are made from now on. At first: SHIFTRON_MACHINE_SUMS (random, fixed), SHIFTRON_MACHINE_SEED
// and SHIFTRON_MACHINE_NCCL_MEMORY (of a connection) of the environment. A communicator takes memory for its
// connections: all of them when it is made where NCCL_RUNTIME_CONNECT is 0, else at the first operation that needs
// them.
void set_nccl(const NcclOptions& options);
int64_t nccl_connections();    // made by this process's operations, for which a host of NCCL's waits for its peers
int64_t nccl_communicators();  // of this process, that were neither destroyed nor aborted

}  // namespace shiftron::machine
