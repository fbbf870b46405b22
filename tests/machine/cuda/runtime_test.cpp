// What the emulated runtime refuses and finds: a training loop of three streams with one injected fault, calls that
// CUDA would accept, memory that the host or nobody may access.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/memory_cuda.h"
#include "core/sanitizer.h"
#include "expect_error.h"
#include "machine/cuda/streams.h"

namespace shiftron {
namespace {

using machine::restart_device;
using machine::run_in_stream;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw_crash(cudaGetErrorString(status));
}

// ---- a loop with faults ---------------------------------------------------------------------------------------------
enum class LoopFault {
  none,
  compute_does_not_wait_for_the_copy,
  host_refills_before_the_copy,
  host_reads_without_waiting,
  freed_under_a_reader,
  result_used_before_its_event,
  copy_over_what_is_read,
};
constexpr std::array kFaults = {LoopFault::compute_does_not_wait_for_the_copy, LoopFault::host_refills_before_the_copy,
                                LoopFault::host_reads_without_waiting,         LoopFault::freed_under_a_reader,
                                LoopFault::result_used_before_its_event,       LoopFault::copy_over_what_is_read};
constexpr const char* kFaultNames[] = {"none",
                                       "compute does not wait for the copy",
                                       "host refills before the copy",
                                       "host reads without waiting",
                                       "freed under a reader",
                                       "result used before its event",
                                       "copy over what is read"};

constexpr int kSteps = 6, kLoopElements = 16;
constexpr size_t kBytes = kLoopElements * sizeof(int64_t);
using Numbers = std::array<int64_t, kLoopElements>;

int64_t* allocate_on_device() {
  void* data = nullptr;
  check(cudaMalloc(&data, kBytes));
  return static_cast<int64_t*>(data);
}

struct EventOfLoop {
  EventOfLoop() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  ~EventOfLoop() { cudaEventDestroy(event); }
  EventOfLoop(const EventOfLoop&) = delete;
  void record(cudaStream_t stream) {
    check(cudaEventRecord(event, stream));
    recorded = true;
  }
  void wait(cudaStream_t stream) const {
    if (recorded) check(cudaStreamWaitEvent(stream, event, 0));
  }
  cudaEvent_t event = nullptr;
  bool recorded = false;
};

struct Slot {
  int64_t *pinned = nullptr, *batch = nullptr, *partial = nullptr, *summed = nullptr;
  EventOfLoop copied, read, exchanged;
};

// The body of an emulated kernel.
void multiply_add(cudaStream_t stream, int64_t* out, const int64_t* in, int64_t factor, int64_t keep) {
  run_in_stream(stream, [=] {
    for (int i = 0; i < kLoopElements; ++i) out[i] = (keep == 0 ? 0 : keep * out[i]) + factor * in[i];
  });
}

Numbers loop(const MachineOptions& options, LoopFault fault) {
  restart_device(options);
  cudaStream_t streams[3] = {};
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  const auto [copy, compute, exchange] = streams;
  void *pinned_total = nullptr, *pinned = nullptr;
  check(cudaMallocHost(&pinned_total, kBytes));
  int64_t* const total = allocate_on_device();
  check(cudaMemsetAsync(total, 0, kBytes, compute));
  Numbers result{};
  {
    Slot slots[2];
    for (Slot& slot : slots) {
      check(cudaMallocHost(&pinned, kBytes));
      slot.pinned = static_cast<int64_t*>(pinned);
      for (int64_t** data : {&slot.batch, &slot.partial, &slot.summed}) *data = allocate_on_device();
    }
    const auto wait = [fault](cudaStream_t stream, const EventOfLoop& event, LoopFault left_out) {
      if (fault != left_out) event.wait(stream);
    };
    for (int step = 0; step < kSteps; ++step) {
      Slot& slot = slots[step % 2];
      if (slot.copied.recorded && fault != LoopFault::host_refills_before_the_copy) {
        check(cudaEventSynchronize(slot.copied.event));
      }
      for (int i = 0; i < kLoopElements; ++i) slot.pinned[i] = 100 * step + i;

      wait(copy, slot.read, LoopFault::copy_over_what_is_read);
      check(cudaMemcpyAsync(slot.batch, slot.pinned, kBytes, cudaMemcpyHostToDevice, copy));
      slot.copied.record(copy);

      wait(compute, slot.copied, LoopFault::compute_does_not_wait_for_the_copy);
      multiply_add(compute, slot.partial, slot.batch, 2, 0);
      slot.read.record(compute);

      slot.read.wait(exchange);
      multiply_add(exchange, slot.summed, slot.partial, 3, 0);
      slot.exchanged.record(exchange);

      wait(compute, slot.exchanged, LoopFault::result_used_before_its_event);
      multiply_add(compute, total, slot.summed, 1, 1 + 6);
    }
    check(cudaMemcpyAsync(pinned_total, total, kBytes, cudaMemcpyDeviceToHost, compute));
    if (fault == LoopFault::freed_under_a_reader) check(cudaFree(total));
    if (fault != LoopFault::host_reads_without_waiting) check(cudaStreamSynchronize(compute));
    for (int i = 0; i < kLoopElements; ++i) result[i] = static_cast<const int64_t*>(pinned_total)[i];
    check(cudaDeviceSynchronize());
    for (Slot& slot : slots) {
      check(cudaFreeHost(slot.pinned));
      for (int64_t* data : {slot.batch, slot.partial, slot.summed}) check(cudaFree(data));
    }
  }
  if (fault != LoopFault::freed_under_a_reader) check(cudaFree(total));
  check(cudaFreeHost(pinned_total));
  for (const cudaStream_t stream : streams) check(cudaStreamDestroy(stream));
  return result;
}

Numbers right() {
  Numbers total{};
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kLoopElements; ++i) total[i] = 7 * total[i] + 6 * (100 * step + i);
  }
  return total;
}

TEST(CudaFaults, TheLoopWithoutFaultIsRightInEveryOrder) {
  for (const Order order : kOrders) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      EXPECT_EQ(loop({.order = order, .seed = seed}, LoopFault::none), right())
          << kOrderNames[static_cast<int>(order)] << ", seed " << seed;
    }
  }
}

// As it is where the operations of a stream are done at the call.
TEST(CudaFaults, TheEagerOrderShowsNoWrongValue) {
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  for (const LoopFault fault : kFaults) {
    EXPECT_EQ(loop({.order = Order::eager}, fault), right()) << kFaultNames[static_cast<int>(fault)];
  }
}

TEST(CudaFaults, LateOrUnevenShowsAWrongValue) {
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  for (const LoopFault fault : kFaults) {
    if (fault == LoopFault::freed_under_a_reader) continue;  // ends the process
    int wrong[4] = {};
    for (const Order order : kOrders) {
      for (uint64_t seed = 0; seed < 8; ++seed) {
        wrong[static_cast<int>(order)] += loop({.order = order, .seed = seed}, fault) != right();
      }
    }
    const std::string name = kFaultNames[static_cast<int>(fault)];
    std::printf("%-36s wrong of 8 seeds: eager %d, random %d, late %d, uneven %d\n", name.c_str(), wrong[0], wrong[1],
                wrong[2], wrong[3]);
    EXPECT_GT(wrong[2] + wrong[3], 0) << name;
  }
}

class CudaFaultsDeathTest : public ::testing::TestWithParam<LoopFault> {
 protected:
  CudaFaultsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// ThreadSanitizer's exit code is 66.
TEST_P(CudaFaultsDeathTest, AreReportedInEveryOrder) {
  if (!sanitizer::kThreads) GTEST_SKIP() << "for builds with ThreadSanitizer";
  for (const Order order : kOrders) {
    EXPECT_EXIT((loop({.order = order}, GetParam()), std::exit(0)), ::testing::ExitedWithCode(66), "data race")
        << kOrderNames[static_cast<int>(order)];
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaFaultsDeathTest, ::testing::ValuesIn(kFaults), [](const auto& tested) {
  std::string name = kFaultNames[static_cast<int>(tested.param)];
  for (char& letter : name) letter = letter == ' ' ? '_' : letter;
  return name;
});

TEST(CudaNoFaultDeathTest, IsNotReported) {
  if (!sanitizer::kThreads) GTEST_SKIP() << "for builds with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Order order : kOrders) {
    EXPECT_EXIT((loop({.order = order}, LoopFault::none), std::exit(0)), ::testing::ExitedWithCode(0), "^$");
  }
}

// ---- memory ---------------------------------------------------------------------------------------------------------
class CudaMemoryDeathTest : public ::testing::Test {
 protected:
  CudaMemoryDeathTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    restart_device({.order = Order::late});
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0));
    data_ = allocate_on_device();
  }
  ~CudaMemoryDeathTest() override {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(data_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  void touch_in_stream(int64_t* place) {
    run_in_stream(stream_, [place] { *const_cast<volatile int64_t*>(place) = 1; });
    check(cudaStreamSynchronize(stream_));
  }
  cudaStream_t stream_ = nullptr;
  int64_t* data_ = nullptr;
};

TEST_F(CudaMemoryDeathTest, OfTheDeviceIsClosedToTheHost) {
  EXPECT_DEATH(*const_cast<volatile int64_t*>(data_ + 2) = 1, "the host touches byte 16 of device memory of 128 bytes");
  touch_in_stream(data_);
  EXPECT_DEATH((void)*const_cast<volatile int64_t*>(data_), "the host touches byte 0 of device memory of 128 bytes");
}

TEST_F(CudaMemoryDeathTest, EndsAtAPageThatNobodyHas) {
  touch_in_stream(data_ + kLoopElements - 1);
  EXPECT_DEATH(touch_in_stream(data_ + kLoopElements), "an operation touches byte 128 of device memory of 128 bytes");
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, 100));
  std::memset(pinned, 0, 100);
  EXPECT_DEATH(static_cast<volatile char*>(pinned)[112] = 1, "the host touches byte 112 of pinned memory of 100 bytes");
  check(cudaFreeHost(pinned));
}

TEST_F(CudaMemoryDeathTest, FreedUnderAnOperationEndsIt) {
  EXPECT_DEATH(
      {
        int64_t* other = allocate_on_device();
        run_in_stream(stream_, [other] { *const_cast<volatile int64_t*>(other) = 1; });
        check(cudaFree(other));
        check(cudaStreamSynchronize(stream_));
      },
      sanitizer::kThreads ? "data race" : "an operation touches byte 0 of freed device memory of 128 bytes");
}

TEST_F(CudaMemoryDeathTest, IsFreedBehindAllOperations) {
  int64_t* other = allocate_on_device();
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, kBytes));
  bool done = false;
  const auto operation = [&done] { done = true; };
  run_in_stream(stream_, operation);
  check(cudaFree(other));
  EXPECT_TRUE(std::exchange(done, false));
  run_in_stream(stream_, operation);
  check(cudaFreeHost(pinned));
  EXPECT_TRUE(done);
}

TEST_F(CudaMemoryDeathTest, BeginsAsNaN) {
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, kBytes));
  check(cudaMemcpyAsync(pinned, data_, kBytes, cudaMemcpyDeviceToHost, stream_));
  check(cudaStreamSynchronize(stream_));
  const auto* bytes = static_cast<const unsigned char*>(pinned);
  EXPECT_TRUE(std::all_of(bytes, bytes + kBytes, [](unsigned char byte) { return byte == 0xFF; }));
  check(cudaFreeHost(pinned));
}

TEST_F(CudaMemoryDeathTest, AddressesNeverComeAgain) {
  std::vector<void*> seen;
  for (int i = 0; i < 100; ++i) {
    void* data = allocate_on_device();
    EXPECT_EQ(std::find(seen.begin(), seen.end(), data), seen.end());
    seen.push_back(data);
    check(cudaFree(data));
  }
}

TEST_F(CudaMemoryDeathTest, IsNobodysWhenFreed) {
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, 100));
  check(cudaFreeHost(pinned));
  EXPECT_DEATH(*static_cast<volatile char*>(pinned) = 1, "the host touches byte 0 of freed pinned memory of 100 bytes");
}

// ---- what CUDA would let pass ---------------------------------------------------------------------------------------
using CudaCalls = CudaMemoryDeathTest;

TEST_F(CudaCalls, HaveNoDefaultStream) {
  EXPECT_ERROR(cudaMemsetAsync(data_, 0, kBytes, nullptr), ExitCode::crash, "cudaMemsetAsync in the default stream");
  EXPECT_ERROR(run_in_stream(nullptr, [] {}), ExitCode::crash, "a launch in the default stream");
  cudaStream_t blocking = nullptr;
  EXPECT_ERROR(cudaStreamCreateWithPriority(&blocking, cudaStreamDefault, 0), ExitCode::crash,
               "a stream that waits for the default stream");
}

TEST_F(CudaCalls, CopyInsideOneAllocationInTheDirectionStated) {
  std::vector<int64_t> pageable(kLoopElements);
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, kBytes));
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_));
  };
  EXPECT_ERROR(copy(data_, pageable.data(), kBytes, cudaMemcpyHostToDevice), ExitCode::crash,
               "an operand does not lie in pinned memory");
  EXPECT_ERROR(copy(data_, pinned, kBytes, cudaMemcpyDeviceToHost), ExitCode::crash,
               "an operand does not lie in device memory");
  EXPECT_ERROR(copy(data_, pinned, kBytes, cudaMemcpyDefault), ExitCode::crash, "states no direction");
  EXPECT_ERROR(copy(data_ + 1, pinned, kBytes, cudaMemcpyHostToDevice), ExitCode::crash,
               "bytes 8 to 136 of device memory of 128");
  EXPECT_ERROR(cudaMemsetAsync(data_, 0, kBytes + 1, stream_), ExitCode::crash, "bytes 0 to 129 of device memory");
  EXPECT_ERROR(cudaFree(pinned), ExitCode::crash, "cudaFree of what is no device memory");
  EXPECT_ERROR(cudaFree(data_ + 1), ExitCode::crash, "cudaFree of what is no device memory");
  check(cudaFreeHost(pinned));
  EXPECT_ERROR(cudaFreeHost(pinned), ExitCode::crash, "cudaFreeHost of what is no pinned memory");
}

TEST_F(CudaCalls, WaitForWhatWasRecorded) {
  const EventOfLoop event;
  EXPECT_ERROR(cudaStreamWaitEvent(stream_, event.event, 0), ExitCode::crash, "of an event that was never recorded");
  EXPECT_ERROR(cudaEventSynchronize(event.event), ExitCode::crash, "of an event that was never recorded");
  EXPECT_ERROR(cudaEventQuery(event.event), ExitCode::crash, "of an event that was never recorded");
}

TEST_F(CudaCalls, DestroyNoStreamUnderItsOperations) {
  run_in_stream(stream_, [] {});
  EXPECT_ERROR(cudaStreamDestroy(stream_), ExitCode::crash, "under 1 operations");
}

TEST_F(CudaCalls, AreNotMadeByOperations) {
  cudaStream_t other = nullptr;
  check(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0));
  run_in_stream(other, [this] { cudaMemsetAsync(data_, 0, kBytes, stream_); });
  EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorLaunchFailure);
  EXPECT_NE(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find("an operation calls cudaMemsetAsync"),
            std::string::npos);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorLaunchFailure);
  check(cudaStreamDestroy(other));
}

TEST_F(CudaCalls, LeaveNothingBehind) {
  EXPECT_ERROR(restart_device({}), ExitCode::crash, "1 streams and 0 events are left");
}

TEST(CudaEnvironmentDeathTest, SaysHowMuchMemoryTheDeviceHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto total_of = [](const char* bytes) {
    setenv("SHIFTRON_MACHINE_MEMORY", bytes, 1);
    return cuda::device_memory().total;
  };
  EXPECT_EXIT(std::exit(total_of("40960") == 40960 ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shiftron
