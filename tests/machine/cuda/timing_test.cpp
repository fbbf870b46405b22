// How long an operation takes: of short ones some stand between two events.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "kernels/timing_cuda.h"
#include "machine/cuda/streams.h"

namespace shiftron {
namespace {

using std::chrono::milliseconds;

struct Timed {
  double seconds;
  int runs;
};

Timed time_operation(milliseconds each) {
  machine::restart_device({.order = Order::eager});
  cudaStream_t stream = nullptr;
  cuda::check_call(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  Timed timed{};
  timed.seconds = cuda::seconds_of(stream, [&] {
    machine::run_in_stream(stream, [each] { std::this_thread::sleep_for(each); });
    ++timed.runs;
  });
  cudaStreamDestroy(stream);
  return timed;
}

TEST(CudaTiming, OfALongOperationTakesOneInEachInterval) {
  const Timed timed = time_operation(milliseconds(2));
  EXPECT_EQ(timed.runs, 2 + cuda::kIntervals);
  EXPECT_GE(timed.seconds, 2e-3);
}

// One that was held up while it was looked at passes for a long one.
TEST(CudaTiming, OfAShortOperationTakesSome) {
  int most = 0;
  for (int attempt = 0; attempt < 100 && most <= 2 + cuda::kIntervals; ++attempt) {
    most = std::max(most, time_operation(milliseconds(0)).runs);
  }
  EXPECT_GT(most, 2 + cuda::kIntervals);
  EXPECT_LE(most, 2 + cuda::kIntervals * static_cast<int>(cuda::kMostRuns));
}

}  // namespace
}  // namespace shiftron
