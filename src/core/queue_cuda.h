// Streams of CUDA as queues; only in builds that have it (kHasCuda).
#pragma once

#include <memory>
#include <string>

#include "core/host.h"
#include "core/stream.h"

namespace shiftron {

class CudaEvents;

// Bodies give their work to context().stream. No function of the host runs in it.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(const std::string& name, int priority = 0);  // on the calling thread's device
  ~CudaQueue() override;                                          // waits for what was handed over
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  std::unique_ptr<Queue> sibling(
      const std::string& name) override;               // its work comes before this one's: others wait for it
  void run(std::function<void()> operation) override;  // always an Error
  std::shared_ptr<Mark> mark(bool timed = false) override;
  void wait(std::shared_ptr<Mark> mark) override;
  void drop() noexcept override;  // waits: CUDA forgets nothing

  CudaContext& context() { return context_; }

 private:
  std::string name_;
  CudaContext context_;
  std::shared_ptr<CudaEvents> events_;  // of its marks, which may outlive it
};

// Of the calling thread's GPU: its name, and the bytes of its own memory that a block may be given.
std::string device_name();
int64_t block_memory();

// What tells the calling thread's GPU from others of its host, whatever numbers CUDA shows them by.
struct DeviceIdentity {
  std::string bus;   // its place there, by which NCCL knows it; slices of a divided GPU (MIG) share it
  std::string uuid;  // of whatever has memory of its own: of a slice, where the GPU is divided
};
DeviceIdentity device_identity();

// GPUs that CUDA shows this process (CUDA_VISIBLE_DEVICES); 0 without a driver.
int cuda_devices();
int require_devices();  // at least one; an Error(bad_input) where there is none

// A queue of the GPU that the rank's number on its host gives it, in which the stream runs from now on; more ranks than
// GPUs share these. The calling thread's device from now on.
std::unique_ptr<Queue> start_cuda(Stream& stream, const HostShare& share = {});
CudaContext& context_of(Queue& queue);  // which is a CudaQueue

}  // namespace shiftron
