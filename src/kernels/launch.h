// What every front end does first: write the cost to the ledger and say whether there is a body to run.
#pragma once

#include <chrono>
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

// Counts a kernel; where the stream is timed its life is the kernel's time.
class Launch {
 public:
  Launch(Stream& stream, const char* name, const Reads& reads, const Writes& writes, int64_t operations)
      : cost_(stream.ledger ? &stream.ledger->add_kernel(name, reads.bytes, writes.bytes, operations) : nullptr),
        runs_(stream.device == DeviceKind::cpu),
        timed_(runs_ && stream.timed) {
    CHECK(cost_ != nullptr, name, " needs a ledger");
    CHECK(stream.device != DeviceKind::cuda, name, " has no CUDA body in this build");
    if (timed_) start_ = Clock::now();
  }
  ~Launch() {
    if (timed_) cost_->seconds += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  bool runs() const { return runs_; }  // false on meta

 private:
  using Clock = std::chrono::steady_clock;
  KernelCost* cost_;
  bool runs_, timed_;
  Clock::time_point start_;
};

// The specification serves float64 and whoever asks for it.
inline bool use_fast(const Stream& stream, DType dtype) {
  return stream.bodies == Bodies::fast && dtype != DType::float64;
}

}  // namespace shiftron
