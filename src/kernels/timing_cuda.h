// How long the device takes for an operation.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/call_cuda.h"

namespace shiftron::cuda {

constexpr int kIntervals = 5;
constexpr double kLongEnough = 200e-6;  // seconds; the host needs some of them from the event to the first launch
constexpr double kMostRuns = 50;        // in one interval

struct DestroyEvent {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using TimingEvent = std::unique_ptr<CUevent_st, DestroyEvent>;

inline TimingEvent make_timing_event() {
  cudaEvent_t made = nullptr;
  check_call(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
  return TimingEvent(made);
}

// Of run(), which gives its work to the stream: the shortest of some intervals, divided by the runs in it. Waits for
// all.
template <typename Run>
double seconds_of(CUstream_st* stream, const Run& run) {
  const TimingEvent begin = make_timing_event(), end = make_timing_event();
  const auto interval = [&](int runs) {
    check_call(cudaEventRecord(begin.get(), stream), "cudaEventRecord");
    for (int i = 0; i < runs; ++i) run();
    check_call(cudaEventRecord(end.get(), stream), "cudaEventRecord");
    check_call(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    return 1e-3 * milliseconds / runs;
  };
  run();  // the first loads what it needs
  const int runs = static_cast<int>(std::min(1 + kLongEnough / interval(1), kMostRuns));
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kIntervals; ++i) least = std::min(least, interval(runs));
  return least;
}

}  // namespace shiftron::cuda
