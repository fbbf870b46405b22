// CUDA streams as queues; only in builds with CUDA (kHasCuda).
#pragma once

#include <memory>
#include <string>

#include "core/host.h"
#include "core/stream.h"

namespace shiftron {

class CudaEvents;

// Bodies enqueue their work on context().stream. No host function runs in it.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(const std::string& name, int priority = 0);  // on the calling thread's device
  ~CudaQueue() override;                                          // waits for its work
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  std::unique_ptr<Queue> sibling(
      const std::string& name) override;               // has priority over this one, because others wait for it
  void run(std::function<void()> operation) override;  // always an Error
  std::shared_ptr<Mark> mark(bool timed = false) override;
  void wait(std::shared_ptr<Mark> mark) override;
  void drop() noexcept override;  // waits: CUDA cannot discard work

  CudaContext& context() { return context_; }

 private:
  std::string name_;
  CudaContext context_;
  std::shared_ptr<CudaEvents> events_;  // of its marks, which may outlive it
};

// Of the calling thread's GPU: its name, and the shared memory in bytes that a block may be given.
std::string device_name();
int64_t block_memory();

// Distinguishes the calling thread's GPU from others of its host, however CUDA numbers them.
struct DeviceIdentity {
  std::string bus;   // PCI address, by which NCCL knows it; shared by the slices of a divided GPU (MIG)
  std::string uuid;  // of the unit with its own memory: a slice if the GPU is divided
};
DeviceIdentity device_identity();

// GPUs visible to this process (CUDA_VISIBLE_DEVICES); 0 without a driver.
int cuda_devices();
int require_devices();  // at least one; otherwise Error(bad_input)

// Creates a queue on the GPU given by the rank's number on its host, and runs the stream in it from now on; if there
// are more ranks than GPUs, they share them. The GPU becomes the calling thread's device.
std::unique_ptr<Queue> start_cuda(Stream& stream, const HostShare& share = {});
CudaContext& context_of(Queue& queue);  // must be a CudaQueue

}  // namespace shiftron
