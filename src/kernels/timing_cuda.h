// Times operations on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/call_cuda.h"
#include "core/memory_cuda.h"

namespace shiftron::cuda {

constexpr int kIntervals = 5;
constexpr double kLongEnough = 200e-6;             // seconds of runs in an interval; events resolve half a microsecond
constexpr int kMostRuns = 50;                      // in one interval
constexpr int64_t kLeftFree = int64_t{256} << 20;  // bytes, for what CUDA and libraries load later

struct DestroyEvent {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using TimingEvent = std::unique_ptr<CUevent_st, DestroyEvent>;

inline TimingEvent make_timing_event() {
  cudaEvent_t made = nullptr;
  check_call(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
  return TimingEvent(made);
}

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};

// Device memory larger than the second-level cache. Writing it evicts everything else from the cache, as the rest of a
// step does between two calls of one operation. Allocated only while candidates are timed.
class ColdCache {
 public:
  // Allocates nothing, and leaves the cache as it is, if fewer than kLeftFree bytes would stay free.
  void take() {
    int device = 0, cache = 0;
    check_call(cudaGetDevice(&device), "cudaGetDevice");
    check_call(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device),
               "cudaDeviceGetAttribute of the second-level cache");
    bytes_ = 2 * static_cast<size_t>(cache);
    void* made = nullptr;
    if (bytes_ == 0 || device_memory().available < static_cast<int64_t>(bytes_) + kLeftFree) return;
    if (cudaMalloc(&made, bytes_) == cudaSuccess)
      memory_.reset(made);
    else
      cudaGetLastError();  // clears the error, which the next call would report otherwise
  }
  void free() { memory_.reset(); }  // waits for the whole device
  void empty(CUstream_st* stream) const {
    if (memory_ != nullptr) check_call(cudaMemsetAsync(memory_.get(), 0, bytes_, stream), "cudaMemsetAsync");
  }

 private:
  std::unique_ptr<void, FreeDevice> memory_;
  size_t bytes_ = 0;
};

// Time of run(), which launches work on the stream: the mean over the runs of an interval, each between two events and
// with an empty cache; the shortest of several intervals. Waits for all.
template <typename Run>
double seconds_of(CUstream_st* stream, const ColdCache& cache, const Run& run) {
  std::vector<std::pair<TimingEvent, TimingEvent>> around;
  const auto interval = [&](size_t runs) {
    while (around.size() < runs) around.emplace_back(make_timing_event(), make_timing_event());
    for (size_t i = 0; i < runs; ++i) {
      cache.empty(stream);  // meanwhile the host launches the run, which therefore follows its event at once
      check_call(cudaEventRecord(around[i].first.get(), stream), "cudaEventRecord");
      run();
      check_call(cudaEventRecord(around[i].second.get(), stream), "cudaEventRecord");
    }
    check_call(cudaEventSynchronize(around[runs - 1].second.get()), "cudaEventSynchronize");
    double seconds = 0;
    for (size_t i = 0; i < runs; ++i) {
      float milliseconds = 0;
      check_call(cudaEventElapsedTime(&milliseconds, around[i].first.get(), around[i].second.get()),
                 "cudaEventElapsedTime");
      seconds += 1e-3 * milliseconds;
    }
    return seconds / static_cast<double>(runs);
  };
  run();  // the first run loads what it needs
  const auto runs = static_cast<size_t>(std::min(1 + kLongEnough / interval(1), double{kMostRuns}));
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kIntervals; ++i) least = std::min(least, interval(runs));
  return least;
}

}  // namespace shiftron::cuda
