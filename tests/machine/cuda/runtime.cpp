// In place of libcudart, the part of it that the product uses; what is missing does not link. Streams are queues of the
// late machine. Stricter than CUDA: no default stream; streams that block no other; asynchronous copies between pinned
// memory and one allocation of the device, in the direction stated; no wait for what was never recorded; nothing is
// freed or destroyed under an operation.
#include <cuda_runtime_api.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/sanitizer.h"
#include "machine/cuda/memory.h"
#include "machine/cuda/streams.h"
#include "machine/scheduler.h"
#include "time_scale.h"

struct CUstream_st {
  std::unique_ptr<shiftron::Queue> queue;
  std::atomic<int> under_way = 0;  // operations
  const std::thread::id host = std::this_thread::get_id();
};
struct CUevent_st {
  std::shared_ptr<shiftron::Mark> mark;  // null: never recorded
  bool timed = false;
};

namespace shiftron::machine {
namespace {

using sanitizer::Hidden;

MachineOptions options_of_environment() {
  MachineOptions options;
  options.patience = scaled(options.patience);
  if (const char* seed = std::getenv("SHIFTRON_MACHINE_SEED")) options.seed = std::strtoull(seed, nullptr, 10);
  const char* order = std::getenv("SHIFTRON_MACHINE_ORDER");
  if (order == nullptr) return options;
  const std::vector<std::string> names = {"eager", "random", "late", "uneven"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != order) continue;
    options.order = static_cast<Order>(i);
    return options;
  }
  throw_bad_input("SHIFTRON_MACHINE_ORDER is ", order, "; it may be eager, random, late or uneven");
}

struct Runtime {
  std::mutex lock;  // of all but the machine; never held while an operation may run
  std::unique_ptr<Machine> machine = std::make_unique<Machine>(options_of_environment());
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  DeviceMemory memory;
  int64_t made = 0;             // streams
  std::string* text = nullptr;  // of the operation that failed last; never freed, as pointers to it are out
  cudaError_t last = cudaSuccess;
};

Runtime& runtime() {
  static auto& only = *new Runtime;
  return only;
}

template <typename Body>
auto locked(Body body) {
  const Hidden hidden;
  const std::lock_guard held(runtime().lock);
  return body(runtime());
}

// A function of the runtime, while it runs.
class Call {
 public:
  explicit Call(const char* name) : name_(name) {
    CHECK(Turns::of_this_thread() == nullptr, "an operation calls ", name);
    locked([](Runtime& on) { on.memory.begin_call(); });
  }
  ~Call() {
    locked([](Runtime& on) { on.memory.end_call(); });
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  CUstream_st& at(cudaStream_t stream) const {
    CHECK(stream != nullptr, name_, " in the default stream, which waits for all others");
    CHECK(locked([stream](Runtime& on) { return on.streams.contains(stream); }), name_,
          " in a stream that is not there");
    return *stream;
  }
  CUevent_st& of(cudaEvent_t event) const {
    CHECK(locked([event](Runtime& on) { return on.events.contains(event); }), name_, " of an event that is not there");
    return *event;
  }
  Mark& recorded(cudaEvent_t event) const {
    Mark* mark = of(event).mark.get();
    CHECK(mark != nullptr, name_, " of an event that was never recorded");
    return *mark;
  }
  // Returns when the mark is reached.
  cudaError_t outcome(Mark& mark) const {
    try {
      mark.wait();
      return cudaSuccess;
    } catch (const Error& error) {
      return locked([&error](Runtime& on) {
        on.text = new std::string(error.what());
        return on.last = cudaErrorLaunchFailure;
      });
    }
  }
  const char* name() const { return name_; }

 private:
  const char* name_;
};

cudaError_t fail(cudaError_t error) {
  return locked([error](Runtime& on) { return on.last = error; });
}

// Counts an operation while it, or a copy of it, is there.
class UnderWay {
 public:
  explicit UnderWay(std::atomic<int>& count) : count_(count) { ++count_; }
  UnderWay(const UnderWay& other) : count_(other.count_) { ++count_; }
  UnderWay& operator=(const UnderWay&) = delete;
  ~UnderWay() { --count_; }

 private:
  std::atomic<int>& count_;
};

// A fault of memory reaches its handler on the threads of streams too.
void take_faults() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

void hand_over(CUstream_st& stream, std::function<void()> operation) {
  stream.queue->run([operation = std::move(operation), under_way = UnderWay(stream.under_way)] {
    take_faults();
    locked([](Runtime& on) { on.memory.open(); });
    operation();
  });
}

cudaError_t allocate(MemoryKind kind, void** data, size_t bytes) {
  *data = bytes == 0 ? nullptr : locked([=](Runtime& on) { return on.memory.allocate(kind, bytes); });
  return bytes > 0 && *data == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

// To ThreadSanitizer it is a write to all of it.
cudaError_t release(MemoryKind kind, void* data, const char* call) {
  if (data == nullptr) return cudaSuccess;
  const size_t bytes = locked([=](Runtime& on) { return on.memory.bytes_of(kind, data, call); });
  sanitizer::state_write(data, bytes);
  locked([=](Runtime& on) { on.memory.free(kind, data, call); });
  return cudaSuccess;
}

}  // namespace

void run_in_stream(cudaStream_t stream, std::function<void()> operation) {
  const Call call("a launch");
  hand_over(call.at(stream), std::move(operation));
}

void restart_device(const MachineOptions& options, int64_t memory) {
  locked([&](Runtime& on) {
    CHECK(on.streams.empty() && on.events.empty(), on.streams.size(), " streams and ", on.events.size(),
          " events are left");
    on.memory.forget_all();
    on.memory.limit = static_cast<size_t>(memory);
    on.machine = std::make_unique<Machine>(options);
    on.last = cudaSuccess;
  });
}

}  // namespace shiftron::machine

using namespace shiftron::machine;  // NOLINT: these functions belong to no namespace
using shiftron::Mark;

// ---- memory ---------------------------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Call call("cudaMalloc");
  return allocate(MemoryKind::device, data, bytes);
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  const Call call("cudaMallocHost");
  return allocate(MemoryKind::pinned, data, bytes);
}

cudaError_t cudaFree(void* data) {
  const Call call("cudaFree");
  return release(MemoryKind::device, data, call.name());
}

cudaError_t cudaFreeHost(void* data) {
  const Call call("cudaFreeHost");
  return release(MemoryKind::pinned, data, call.name());
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const Call call("cudaMemGetInfo");
  locked([=](Runtime& on) {
    *total = on.memory.limit;
    *available = on.memory.limit - on.memory.used;
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call("cudaMemcpyAsync");
  CUstream_st& at = call.at(stream);
  CHECK(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice,
        call.name(), " of kind ", static_cast<int>(kind), " states no direction");
  if (bytes == 0) return cudaSuccess;
  const MemoryKind source = kind == cudaMemcpyHostToDevice ? MemoryKind::pinned : MemoryKind::device;
  const MemoryKind target = kind == cudaMemcpyDeviceToHost ? MemoryKind::pinned : MemoryKind::device;
  locked([&](Runtime& on) {
    on.memory.check_range(source, from, bytes, call.name());
    on.memory.check_range(target, to, bytes, call.name());
  });
  hand_over(at, [to, from, bytes] {
    shiftron::sanitizer::state_read(from, bytes);
    shiftron::sanitizer::state_write(to, bytes);
    const Hidden hidden;
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Call call("cudaMemsetAsync");
  CUstream_st& at = call.at(stream);
  if (bytes == 0) return cudaSuccess;
  locked([&](Runtime& on) { on.memory.check_range(MemoryKind::device, to, bytes, call.name()); });
  hand_over(at, [to, value, bytes] {
    shiftron::sanitizer::state_write(to, bytes);
    const Hidden hidden;
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

// ---- streams --------------------------------------------------------------------------------------------------------
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  const Call call("cudaStreamCreateWithPriority");
  CHECK(flags == cudaStreamNonBlocking, call.name(), " of a stream that waits for the default stream");
  const Hidden hidden;
  const auto [machine, number] = locked([](Runtime& on) { return std::pair(on.machine.get(), on.made++); });
  auto made = std::make_unique<CUstream_st>();
  made->queue = machine->make_queue("stream " + std::to_string(number));  // waits for operations, which need the lock
  *stream = made.release();
  locked([stream](Runtime& on) { on.streams.insert(*stream); });
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call("cudaStreamDestroy");
  const CUstream_st& at = call.at(stream);
  CHECK(at.under_way == 0, call.name(), " under ", at.under_way, " operations");
  const Hidden hidden;
  locked([stream](Runtime& on) { on.streams.erase(stream); });
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Call call("cudaStreamSynchronize");
  return call.outcome(*call.at(stream).queue->mark());
}

// Ranks that are threads have a device each.
cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize");
  cudaError_t worst = cudaSuccess;
  const auto streams = locked([](Runtime& on) {
    std::set<cudaStream_t> own = on.streams;
    std::erase_if(own, [](cudaStream_t stream) { return stream->host != std::this_thread::get_id(); });
    return own;
  });
  for (const cudaStream_t stream : streams) {
    const cudaError_t one = call.outcome(*stream->queue->mark());
    if (one != cudaSuccess) worst = one;
  }
  return worst;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const Call call("cudaStreamWaitEvent");
  CHECK(flags == 0, call.name(), " with flags ", flags);
  CUstream_st& at = call.at(stream);
  call.recorded(event);
  const Hidden hidden;
  at.queue->wait(event->mark);
  return cudaSuccess;
}

// ---- events ---------------------------------------------------------------------------------------------------------
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call("cudaEventCreateWithFlags");
  CHECK((flags & ~static_cast<unsigned>(cudaEventBlockingSync | cudaEventDisableTiming)) == 0, call.name(),
        " with flags ", flags);
  locked([&](Runtime& on) {
    *event = new CUevent_st;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    on.events.insert(*event);
  });
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call("cudaEventDestroy");
  call.of(event);
  const Hidden hidden;
  locked([event](Runtime& on) { on.events.erase(event); });
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Call call("cudaEventRecord");
  CUstream_st& at = call.at(stream);
  CUevent_st& to = call.of(event);
  const Hidden hidden;
  to.mark = at.queue->mark();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call("cudaEventSynchronize");
  return call.outcome(call.recorded(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Call call("cudaEventQuery");
  Mark& mark = call.recorded(event);
  return mark.reached() ? call.outcome(mark) : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Call call("cudaEventElapsedTime");
  CHECK(call.of(start).timed && call.of(end).timed, call.name(), " of events without timing");
  const Mark &from = call.recorded(start), &to = call.recorded(end);
  *milliseconds = static_cast<float>(1000 * to.seconds_since(from));
  return cudaSuccess;
}

// ---- errors and devices ---------------------------------------------------------------------------------------------
cudaError_t cudaPeekAtLastError() {
  return locked([](Runtime& on) { return on.last; });
}

cudaError_t cudaGetLastError() {
  return locked([](Runtime& on) { return std::exchange(on.last, cudaSuccess); });
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    default:
      return "an error that the machine does not return";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  const std::string* text = locked([](Runtime& on) { return on.text; });
  return error == cudaErrorLaunchFailure && text != nullptr ? text->c_str() : cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  CHECK(device == 0, "cudaGetDeviceProperties of device ", device);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "software machine");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  CHECK(device == 0, "cudaDeviceGetAttribute of device ", device);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    default:
      shiftron::throw_crash("cudaDeviceGetAttribute of attribute ", static_cast<int>(attribute));
  }
}
