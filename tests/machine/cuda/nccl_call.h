// Calls of NCCL, as the emulator keeps and compares them, and sums of ranks. Only included by files that are not
// instrumented.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace shiftron::machine {

enum class NcclKind { all_reduce, all_gather, reduce_scatter, broadcast, send, recv };

struct NcclCall {
  NcclKind kind;
  const void* from;  // null in recv
  void* to;          // null in send
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  // or root

  bool is_message() const { return kind == NcclKind::send || kind == NcclKind::recv; }
  bool fits(const NcclCall& other) const;  // the same call of two ranks, no message
  size_t bytes() const;                    // of `count` elements; a fault if the type is not emulated
  size_t bytes_read(int rank, int ranks) const;
  size_t bytes_written(int ranks) const;
};

const char* name_of(NcclKind kind);
std::string text_of(const NcclCall& call);

// Elements [first, first + count) of the call's reduction, ranks in this order; bfloat16 is added in float32 and
// rounded once, or after every rank.
void reduce_ranks(const NcclCall& call, const std::vector<const void*>& sources, size_t first,
                  const std::vector<int>& order, bool rounds_every_sum, void* to);

}  // namespace shiftron::machine
