// Replaces the part of libcudart that the product uses; other functions do not link. Streams are queues of the late
// scheduler. Stricter than CUDA: no default stream; no stream blocks another; asynchronous copies are between pinned
// memory and one allocation of the device, in the stated direction; no wait for an event that was never recorded;
// nothing is freed or destroyed during an operation, although cudaFree waits for all of them; threads only use their
// own device.
#include <cuda_runtime_api.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/thread_without_signals.h"
#include "core/sanitizer.h"
#include "machine/cuda/counts.h"
#include "machine/cuda/injection.h"
#include "machine/cuda/memory.h"
#include "machine/cuda/processor.h"
#include "machine/cuda/shared_memory.h"
#include "machine/cuda/streams.h"
#include "machine/scheduler.h"
#include "time_scale.h"

namespace {
thread_local int device_of_thread = 0;
}
struct CUstream_st {
  const int device = device_of_thread;
  std::unique_ptr<shiftron::Queue> queue;
  std::atomic<int> under_way = 0;  // operations
  const std::thread::id host = std::this_thread::get_id();
};
struct CUevent_st {
  const int device = device_of_thread;
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

// Bytes of the device.
int64_t memory_of_environment() {
  const char* bytes = std::getenv("SHIFTRON_MACHINE_MEMORY");
  return bytes == nullptr ? kUsualMemory : std::strtoll(bytes, nullptr, 10);
}

struct Runtime {
  Runtime() { memory.limit = static_cast<size_t>(memory_of_environment()); }
  std::mutex lock;  // of everything but the scheduler; never held while an operation may run
  std::shared_ptr<Machine> machine = std::make_shared<Machine>(options_of_environment());
  bool helped = false;  // by help_streams()
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
  Call(const char* name, int64_t Counts::*kind) : Call(name) { ++(counts().*kind); }
  ~Call() {
    locked([](Runtime& on) { on.memory.end_call(); });
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  CUstream_st& at(cudaStream_t stream) const {
    CHECK(stream != nullptr, name_, " in the default stream, which waits for all others");
    CHECK(locked([stream](Runtime& on) { return on.streams.contains(stream); }), name_,
          " in a stream that is not there");
    check_device("a stream", stream->device);
    return *stream;
  }
  CUevent_st& of(cudaEvent_t event) const {
    CHECK(locked([event](Runtime& on) { return on.events.contains(event); }), name_, " of an event that is not there");
    check_device("an event", event->device);
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
  // What is returned instead of doing anything: an error that was asked for, or that of a device that is lost.
  cudaError_t injected(CallKind kind, cudaError_t error) const {
    Injection& of = *injection();
    if (!of.strikes(kind, name_) && !of.device_lost()) return cudaSuccess;
    if (error == cudaErrorLaunchFailure) of.lose_device();
    if (of.device_lost()) error = cudaErrorLaunchFailure;
    return locked([error, &of](Runtime& on) {
      if (of.device_lost()) on.text = new std::string("unspecified launch failure");
      return on.last = error;
    });
  }
  const char* name() const { return name_; }

 private:
  // CUDA would make the thread a context on the device that it has, half a gigabyte of it.
  void check_device(const char* what, int device) const {
    CHECK(device == device_of_thread, name_, " of ", what, " of device ", device, " in a thread of device ",
          device_of_thread);
  }
  const char* name_;
};

// One of the host's GPUs, or a slice of it.
struct Gpu {
  int number = 0;
  int slice = 0;  // of MIG, from 1; 0: all of it
};

thread_local std::optional<std::string> visible_to_thread;

// Those that CUDA shows a rank, up to the first that is not there: "2,0", "MIG-GPU-2/1/0".
std::vector<Gpu> shown_gpus() {
  const char* devices = std::getenv("SHIFTRON_MACHINE_DEVICES");
  const int there = devices == nullptr ? 8 : std::atoi(devices);
  std::vector<Gpu> shown;
  const char* of_process = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible_to_thread && of_process == nullptr) {
    for (int number = 0; number < there; ++number) shown.push_back({number});
    return shown;
  }
  std::istringstream words(visible_to_thread ? *visible_to_thread : of_process);
  for (std::string word; std::getline(words, word, ',');) {
    Gpu gpu;
    const bool known = std::sscanf(word.c_str(), "MIG-GPU-%d/%d/0", &gpu.number, &gpu.slice) == 2 ||
                       std::sscanf(word.c_str(), "%d", &gpu.number) == 1;
    if (!known || gpu.number < 0 || gpu.number >= there) break;
    shown.push_back(gpu);
  }
  return shown;
}
int devices() {
  return static_cast<int>(shown_gpus().size());
}
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
  const bool fails = injection()->strikes(CallKind::kernel, "an operation of a stream");
  stream.queue->run(
      [operation = std::move(operation), under_way = UnderWay(stream.under_way), fails, of_host = injection()] {
        take_faults();
        if (fails) of_host->lose_device();
        if (of_host->device_lost()) throw_crash("unspecified launch failure");
        open_memory();
        operation();
      });
}

cudaError_t allocate(const Call& call, MemoryKind kind, void** data, size_t bytes) {
  if (const auto told = call.injected(CallKind::allocation, cudaErrorMemoryAllocation)) return told;
  *data = bytes == 0 ? nullptr : locked([=](Runtime& on) { return on.memory.allocate(kind, bytes); });
  return bytes > 0 && *data == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

// Ranks that are threads have a device each.
std::set<cudaStream_t> streams_of_thread() {
  return locked([](Runtime& on) {
    std::set<cudaStream_t> own = on.streams;
    std::erase_if(own, [](cudaStream_t stream) { return stream->host != std::this_thread::get_id(); });
    return own;
  });
}

// Returns when all that the device was given is done, with what failed of it.
cudaError_t finish_device(const Call& call) {
  cudaError_t worst = cudaSuccess;
  for (const cudaStream_t stream : streams_of_thread()) {
    const cudaError_t one = call.outcome(*stream->queue->mark());
    if (one != cudaSuccess) worst = one;
  }
  return worst;
}

// To ThreadSanitizer it is a write to all of it. The wait comes last: an operation under way that still wants the
// memory does not get it.
cudaError_t release(MemoryKind kind, void* data, const Call& call) {
  if (data == nullptr) return cudaSuccess;
  const size_t bytes = locked([&](Runtime& on) { return on.memory.bytes_of(kind, data, call.name()); });
  sanitizer::state_write(data, bytes);
  locked([&](Runtime& on) { on.memory.free(kind, data, call.name()); });
  return finish_device(call);
}

std::atomic<bool>& loading_waits() {
  static std::atomic<bool> only = false;
  return only;
}

}  // namespace

void wait_for_device(const std::string& why) noexcept {
  const Call call("a wait for the device");
  for (const cudaStream_t stream : streams_of_thread()) {
    const std::shared_ptr<Mark> end = stream->queue->mark();
    try {
      end->wait();
    } catch (const Error& error) {
      if (end->reached()) continue;
      std::fprintf(stderr, "%s waits for the device for ever: %s\n", why.c_str(), error.what());
      std::abort();
    }
  }
}

static std::atomic<int>& cache_bytes() {
  static std::atomic<int> only = 32 << 10;
  return only;
}
int second_level_cache() {
  return cache_bytes();
}
void set_second_level_cache(int bytes) {
  cache_bytes() = bytes;
}

void let_loading_wait(bool waits) {
  loading_waits() = waits;
}
void load_code(const std::string& name) {
  thread_local std::set<std::string> loaded;
  if (loading_waits() && loaded.insert(name).second) wait_for_device("loading " + name);
}

void run_in_stream(cudaStream_t stream, std::function<void()> operation) {
  const Call call("a launch");
  hand_over(call.at(stream), std::move(operation));
}

void open_memory() {
  locked([](Runtime& on) { on.memory.open(); });
}

bool take_memory(size_t bytes) {
  return locked([bytes](Runtime& on) {
    if (bytes > on.memory.limit - on.memory.used) return false;
    on.memory.used += bytes;
    return true;
  });
}
void give_memory(size_t bytes) {
  locked([bytes](Runtime& on) { on.memory.used -= bytes; });
}

int gpu_of_thread() {
  return shown_gpus().at(static_cast<size_t>(device_of_thread)).number;
}

VisibleDevices::VisibleDevices(const std::string& names) {
  visible_to_thread = names;
}
VisibleDevices::~VisibleDevices() {
  visible_to_thread.reset();
}

void help_streams() {
  if (locked([](Runtime& on) { return std::exchange(on.helped, true); })) return;
  const auto machine = locked([](Runtime& on) { return on.machine; });
  thread_without_signals([machine] {
    while (locked([&](Runtime& on) { return on.machine == machine; })) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const Call call("the emulator's thread");
      machine->relieve();
    }
  }).detach();
}

cudaError_t launch_in_stream(const char* kernel, cudaStream_t stream, std::function<void()> operation) {
  const Call call(kernel);
  if (const auto told = call.injected(CallKind::launch, cudaErrorLaunchOutOfResources)) return told;
  hand_over(call.at(stream), std::move(operation));
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking == nullptr || std::strcmp(blocking, "1") != 0) return cudaSuccess;
  return call.outcome(*call.at(stream).queue->mark());
}

std::map<std::string, int64_t> runtime_objects() {
  return locked([](Runtime& on) -> std::map<std::string, int64_t> {
    return {{"streams", on.streams.size()},
            {"events", on.events.size()},
            {"allocations", on.memory.allocations(MemoryKind::device)},
            {"pinned allocations", on.memory.allocations(MemoryKind::pinned)}};
  });
}

void restart_device(const MachineOptions& options, int64_t memory) {
  locked([&](Runtime& on) {
    CHECK(on.streams.empty() && on.events.empty(), on.streams.size(), " streams and ", on.events.size(),
          " events are left");
    on.memory.forget_all();
    on.memory.limit = static_cast<size_t>(memory);
    on.machine = std::make_shared<Machine>(options);
    on.helped = false;
    on.last = cudaSuccess;
  });
}

}  // namespace shiftron::machine

using namespace shiftron::machine;  // NOLINT: these functions belong to no namespace
using shiftron::Mark;

// ---- memory ---------------------------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Call call("cudaMalloc", &Counts::device_allocations);
  return allocate(call, MemoryKind::device, data, bytes);
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  const Call call("cudaMallocHost", &Counts::pinned_allocations);
  return allocate(call, MemoryKind::pinned, data, bytes);
}

cudaError_t cudaFree(void* data) {
  const Call call("cudaFree", &Counts::frees);
  return release(MemoryKind::device, data, call);
}

cudaError_t cudaFreeHost(void* data) {
  const Call call("cudaFreeHost", &Counts::frees);
  return release(MemoryKind::pinned, data, call);
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const Call call("cudaMemGetInfo");
  if (const auto told = call.injected(CallKind::device, cudaErrorInitializationError)) return told;
  locked([=](Runtime& on) {
    *total = on.memory.limit;
    *available = on.memory.limit - on.memory.used;
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call("cudaMemcpyAsync");
  if (const auto told = call.injected(CallKind::copy, cudaErrorInvalidValue)) return told;
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
  if (const auto told = call.injected(CallKind::copy, cudaErrorInvalidValue)) return told;
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
  const Call call("cudaStreamCreateWithPriority", &Counts::streams);
  if (const auto told = call.injected(CallKind::stream, cudaErrorMemoryAllocation)) return told;
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
  const Call call("cudaStreamSynchronize", &Counts::stream_waits);
  const cudaError_t told = call.injected(CallKind::stream, cudaErrorLaunchFailure);
  const cudaError_t found = call.outcome(*call.at(stream).queue->mark());
  return told != cudaSuccess ? told : found;
}

cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize", &Counts::device_waits);
  const cudaError_t told = call.injected(CallKind::device, cudaErrorLaunchFailure);
  const cudaError_t found = finish_device(call);
  return found != cudaSuccess ? found : told;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const Call call("cudaStreamWaitEvent");
  if (const auto told = call.injected(CallKind::stream, cudaErrorInvalidResourceHandle)) return told;
  CHECK(flags == 0, call.name(), " with flags ", flags);
  CUstream_st& at = call.at(stream);
  call.recorded(event);
  const Hidden hidden;
  at.queue->wait(event->mark);
  return cudaSuccess;
}

// ---- events ---------------------------------------------------------------------------------------------------------
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call("cudaEventCreateWithFlags", &Counts::events);
  if (const auto told = call.injected(CallKind::event, cudaErrorMemoryAllocation)) return told;
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
  if (const auto told = call.injected(CallKind::event, cudaErrorInvalidResourceHandle)) return told;
  CUstream_st& at = call.at(stream);
  CUevent_st& to = call.of(event);
  const Hidden hidden;
  to.mark = at.queue->mark();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call("cudaEventSynchronize", &Counts::event_waits);
  const cudaError_t told = call.injected(CallKind::event, cudaErrorLaunchFailure);
  const cudaError_t found = call.outcome(call.recorded(event));
  return told != cudaSuccess ? told : found;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Call call("cudaEventQuery");
  if (const auto told = call.injected(CallKind::event, cudaErrorLaunchFailure)) return told;
  Mark& mark = call.recorded(event);
  return mark.reached() ? call.outcome(mark) : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Call call("cudaEventElapsedTime");
  if (const auto told = call.injected(CallKind::event, cudaErrorInvalidResourceHandle)) return told;
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

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"}};

static const ErrorText& text_of(cudaError_t error) {
  constexpr static ErrorText kOther{cudaErrorUnknown, "another error", "an error that the emulator does not return"};
  const auto* const found = std::ranges::find(kErrors, error, &ErrorText::error);
  return found == std::end(kErrors) ? kOther : *found;
}

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const std::string* text = locked([](Runtime& on) { return on.text; });
  return error == cudaErrorLaunchFailure && text != nullptr ? text->c_str() : text_of(error).text;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call("cudaGetDeviceCount");
  *count = 0;
  if (const auto told = call.injected(CallKind::device, cudaErrorNoDevice)) return told;
  *count = devices();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  const Call call("cudaSetDevice");
  if (const auto told = call.injected(CallKind::device, cudaErrorInitializationError)) return told;
  if (device < 0 || device >= devices()) return fail(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  const Call call("cudaGetDevice");
  if (const auto told = call.injected(CallKind::device, cudaErrorInitializationError)) return told;
  *device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Call call("cudaGetDeviceProperties");
  if (const auto told = call.injected(CallKind::device, cudaErrorInitializationError)) return told;
  CHECK(device >= 0 && device < devices(), "cudaGetDeviceProperties of device ", device);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "CUDA emulator");
  const Gpu gpu = shown_gpus()[static_cast<size_t>(device)];
  properties->uuid.bytes[0] = static_cast<char>(gpu.number);
  properties->uuid.bytes[1] = static_cast<char>(gpu.slice);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device) {
  const Call call("cudaDeviceGetPCIBusId");
  if (const auto told = call.injected(CallKind::device, cudaErrorInvalidDevice)) return told;
  CHECK(device >= 0 && device < devices(), "cudaDeviceGetPCIBusId of device ", device);
  const int number = shown_gpus()[static_cast<size_t>(device)].number;
  const int written = std::snprintf(bus, static_cast<size_t>(length), "0000:%02X:00.0", number);
  return written < length ? cudaSuccess : fail(cudaErrorInvalidValue);
}

constexpr int kMostShared = shiftron::machine::SharedMemory::kMostBytes;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Call call("cudaFuncSetAttribute");
  if (const auto told = call.injected(CallKind::device, cudaErrorInvalidValue)) return told;
  CHECK(attribute == cudaFuncAttributeMaxDynamicSharedMemorySize, "cudaFuncSetAttribute of attribute ",
        static_cast<int>(attribute));
  if (kernel == nullptr || value < 0 || value > kMostShared) return fail(cudaErrorInvalidValue);
  shiftron::machine::allow_shared(kernel, value);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Call call("cudaDeviceGetAttribute");
  if (const auto told = call.injected(CallKind::device, cudaErrorInitializationError)) return told;
  CHECK(device >= 0 && device < devices(), "cudaDeviceGetAttribute of device ", device);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kMostShared;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = second_level_cache();
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
