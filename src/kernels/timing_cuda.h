// How long the device takes for an operation.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/call_cuda.h"

namespace shiftron::cuda {

constexpr int kTimedRuns = 5;  // behind one that is not timed

struct DestroyEvent {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using TimingEvent = std::unique_ptr<CUevent_st, DestroyEvent>;

inline TimingEvent make_timing_event() {
  cudaEvent_t made = nullptr;
  check_call(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
  return TimingEvent(made);
}

// Of run(), which gives its work to the stream: the fastest of some. Waits for all of them.
template <typename Run>
double seconds_of(CUstream_st* stream, const Run& run) {
  const TimingEvent begin = make_timing_event(), end = make_timing_event();
  run();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimedRuns; ++i) {
    check_call(cudaEventRecord(begin.get(), stream), "cudaEventRecord");
    run();
    check_call(cudaEventRecord(end.get(), stream), "cudaEventRecord");
    check_call(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    least = std::min(least, 1e-3 * milliseconds);
  }
  return least;
}

}  // namespace shiftron::cuda
