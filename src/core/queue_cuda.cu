// Streams and events.
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/call_cuda.h"
#include "core/environment.h"
#include "core/hash.h"
#include "core/queue_cuda.h"

namespace shiftron {

using cuda::check_call;

// Events of one device. Events that no mark holds are reused, so a step creates none.
class CudaEvents {
 public:
  CudaEvents() { check_call(cudaGetDevice(&device_), "cudaGetDevice"); }
  ~CudaEvents() {
    enter();
    for (const Pool* pool : {&plain_, &timed_}) {
      for (cudaEvent_t event : pool->free) cudaEventDestroy(event);
    }
  }
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  // Threads that have chosen no device may query marks: CUDA would create a context for them on the first device.
  cudaError_t enter() const noexcept { return cudaSetDevice(device_); }

  cudaEvent_t take(bool timed) {
    const std::lock_guard lock(mutex_);
    Pool& pool = timed ? timed_ : plain_;
    if (pool.free.empty()) {
      pool.free.reserve(++pool.made);
      cudaEvent_t event = nullptr;
      check_call(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
                 "cudaEventCreateWithFlags");
      return event;
    }
    const cudaEvent_t event = pool.free.back();
    pool.free.pop_back();
    return event;
  }
  void give_back(cudaEvent_t event, bool timed) noexcept {
    const std::lock_guard lock(mutex_);
    (timed ? timed_ : plain_).free.push_back(event);  // does not allocate: see take()
  }

 private:
  struct Pool {
    std::vector<cudaEvent_t> free;
    size_t made = 0;
  };
  int device_ = 0;
  std::mutex mutex_;
  Pool plain_, timed_;
};

namespace {

class CudaMark final : public Mark {
 public:
  CudaMark(cudaStream_t stream, std::shared_ptr<CudaEvents> events, bool timed)
      : events_(std::move(events)), event_(events_->take(timed)), timed_(timed) {
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status == cudaSuccess) return;
    events_->give_back(event_, timed_);
    check_call(status, "cudaEventRecord");
  }
  ~CudaMark() override { events_->give_back(event_, timed_); }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  bool reached() override {
    events_->enter();
    return cudaEventQuery(event_) != cudaErrorNotReady;
  }
  void wait() override {
    check_call(events_->enter(), "cudaSetDevice");
    check_call(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }
  double seconds_since(const Mark& earlier) const override {
    const auto* other = dynamic_cast<const CudaMark*>(&earlier);
    CHECK(other != nullptr && timed_ && other->timed_,
          "cannot measure the time between marks of two devices, or marks without timing");
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, other->event(), event()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) / 1000;
  }
  cudaEvent_t event() const { return event_; }

 private:
  std::shared_ptr<CudaEvents> events_;
  cudaEvent_t event_;
  bool timed_;
};

}  // namespace

CudaQueue::CudaQueue(const std::string& name, int priority) : name_(name), events_(std::make_shared<CudaEvents>()) {
  check_call(cudaStreamCreateWithPriority(&context_.stream, cudaStreamNonBlocking, priority),
             ("cudaStreamCreateWithPriority for " + name).c_str());
  context_.most_shared = block_memory();
}

CudaQueue::~CudaQueue() {
  drop();
  cudaStreamDestroy(context_.stream);
}

std::unique_ptr<Queue> CudaQueue::sibling(const std::string& name) {
  return std::make_unique<CudaQueue>(name, -1);
}

void CudaQueue::run(std::function<void()>) {
  throw_crash("CUDA queue ", name_, " cannot run host functions");
}

std::shared_ptr<Mark> CudaQueue::mark(bool timed) {
  return std::make_shared<CudaMark>(context_.stream, events_, timed);
}

void CudaQueue::wait(std::shared_ptr<Mark> mark) {
  const auto* place = dynamic_cast<const CudaMark*>(mark.get());
  CHECK(place != nullptr, "queue ", name_, " cannot wait for a mark of another device");
  check_call(cudaStreamWaitEvent(context_.stream, place->event(), 0), "cudaStreamWaitEvent");
}

void CudaQueue::drop() noexcept {
  cudaStreamSynchronize(context_.stream);
}

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties{};
  check_call(cudaGetDevice(&device), "cudaGetDevice");
  check_call(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties.name;
}

int64_t block_memory() {
  int device = 0, bytes = 0;
  check_call(cudaGetDevice(&device), "cudaGetDevice");
  check_call(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute for shared memory per block");
  return bytes;
}

DeviceIdentity device_identity() {
  int device = 0;
  char bus[32] = "";
  cudaDeviceProp properties{};
  check_call(cudaGetDevice(&device), "cudaGetDevice");
  check_call(cudaDeviceGetPCIBusId(bus, sizeof(bus), device), "cudaDeviceGetPCIBusId");
  check_call(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {.bus = bus, .uuid = to_hex(std::bit_cast<Hash128>(properties.uuid))};
}

CudaContext& context_of(Queue& queue) {
  return dynamic_cast<CudaQueue&>(queue).context();
}

namespace {

cudaError_t count_devices(int& count) {
  // CUDA reads it at its first call. By its default, streams would share hardware queues, in which one that waits for a
  // peer delays others.
  set_environment_default("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return status;
  count = 0;
  cudaGetLastError();  // otherwise the next call would report it
  return status;
}

}  // namespace

int cuda_devices() {
  int count = 0;
  count_devices(count);
  return count;
}

int require_devices() {
  int count = 0;
  const cudaError_t status = count_devices(count);
  if (count == 0) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw_bad_input("no GPU found on host ", host_name(),
                    " (cudaGetDeviceCount: ", status == cudaSuccess ? "none" : cudaGetErrorString(status),
                    visible == nullptr ? std::string() : std::string("; CUDA_VISIBLE_DEVICES is \"") + visible + "\"",
                    "); check nvidia-smi, or set device.kind=cpu");
  }
  return count;
}

std::unique_ptr<Queue> start_cuda(Stream& stream, const HostShare& share) {
  check_call(cudaSetDevice(share.local_rank % require_devices()), "cudaSetDevice");
  auto queue = std::make_unique<CudaQueue>("compute");
  stream.device = DeviceKind::cuda;
  stream.queue = queue.get();
  stream.cuda = &queue->context();
  return queue;
}

}  // namespace shiftron
