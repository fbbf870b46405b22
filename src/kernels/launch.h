// What every front end does first: write the cost to the ledger and say whether there is a body to run.
#pragma once

#include <initializer_list>

#include "core/stream.h"

namespace shiftron {

struct Reads {
  int64_t bytes = 0;
  Reads(std::initializer_list<ConstTensor> tensors) {
    for (const ConstTensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      tensor.check_alive();
      bytes += tensor.bytes();
    }
  }
};
using Writes = Reads;

// Counts the kernel; false on meta, where nothing runs. InOut tensors stand in both lists.
inline bool launch(Stream& stream, const char* name, const Reads& reads, const Writes& writes, int64_t operations) {
  CHECK(stream.ledger != nullptr, name, " needs a ledger");
  stream.ledger->add_kernel(name, reads.bytes, writes.bytes, operations);
  CHECK(stream.device != DeviceKind::cuda, name, " has no CUDA body in this build");
  return stream.device == DeviceKind::cpu;
}

// The specification serves float64 and whoever asks for it.
inline bool use_fast(const Stream& stream, DType dtype) {
  return stream.bodies == Bodies::fast && dtype != DType::float64;
}

}  // namespace shiftron
