// Streams and events.
#include <cstdlib>

#include "core/call_cuda.h"
#include "core/queue_cuda.h"

namespace shiftron {
namespace {

using cuda::check_call;

class CudaMark final : public Mark {
 public:
  explicit CudaMark(cudaStream_t stream) {
    cudaEvent_t made = nullptr;
    check_call(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
    event_.reset(made);
    check_call(cudaEventRecord(made, stream), "cudaEventRecord");
  }

  bool reached() override { return cudaEventQuery(event()) != cudaErrorNotReady; }
  void wait() override { check_call(cudaEventSynchronize(event()), "cudaEventSynchronize"); }
  double seconds_since(const Mark& earlier) const override {
    const auto* other = dynamic_cast<const CudaMark*>(&earlier);
    CHECK(other != nullptr, "a time between marks of two devices");
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, other->event(), event()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) / 1000;
  }
  cudaEvent_t event() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

}  // namespace

CudaQueue::CudaQueue(const std::string& name, int priority) : name_(name) {
  check_call(cudaStreamCreateWithPriority(&context_.stream, cudaStreamNonBlocking, priority),
             ("cudaStreamCreateWithPriority for " + name).c_str());
}

CudaQueue::~CudaQueue() {
  drop();
  cudaStreamDestroy(context_.stream);
}

std::unique_ptr<Queue> CudaQueue::sibling(const std::string& name) {
  return std::make_unique<CudaQueue>(name, -1);
}

void CudaQueue::run(std::function<void()>) {
  throw_crash("a function of the host for queue ", name_, " of CUDA");
}

std::shared_ptr<Mark> CudaQueue::mark() {
  return std::make_shared<CudaMark>(context_.stream);
}

void CudaQueue::wait(std::shared_ptr<Mark> mark) {
  const auto* place = dynamic_cast<const CudaMark*>(mark.get());
  CHECK(place != nullptr, "queue ", name_, " waits for a mark of another device");
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

CudaContext& context_of(Queue& queue) {
  return dynamic_cast<CudaQueue&>(queue).context();
}

int cuda_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return count;
  cudaGetLastError();  // which the next call would report else
  return 0;
}

std::unique_ptr<Queue> start_cuda(Stream& stream, const HostShare& share) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw_bad_input("rank ", share.local_rank, " of host ", host_name(), " finds no GPU (cudaGetDeviceCount: ",
                    status == cudaSuccess ? "none" : cudaGetErrorString(status),
                    visible == nullptr ? std::string() : std::string("; CUDA_VISIBLE_DEVICES is \"") + visible + "\"",
                    "); look at nvidia-smi, or set device.kind=cpu");
  }
  check_call(cudaSetDevice(share.local_rank % count), "cudaSetDevice");
  auto queue = std::make_unique<CudaQueue>("compute");
  stream.device = DeviceKind::cuda;
  stream.queue = queue.get();
  stream.cuda = &queue->context();
  return queue;
}

}  // namespace shiftron
