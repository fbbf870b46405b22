// Queues, buffers and copies of CUDA, in every order of the emulator's streams.
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "core/event.h"
#include "core/memory.h"
#include "core/memory_cuda.h"
#include "core/queue_cuda.h"
#include "expect_error.h"
#include "kernels/kernels.h"
#include "machine/cuda/streams.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using machine::restart_device;
using machine::run_in_stream;

constexpr int kStreamElements = 16;

class CudaStream : public ::testing::TestWithParam<Order> {
 protected:
  CudaStream() {
    restart_device({.order = GetParam(), .seed = 3, .patience = scaled(20)}, kDeviceBytes);
    queue_ = start_cuda(stream_);
  }
  static constexpr int64_t kDeviceBytes = 1 << 20;
  static Shape shape() { return {kStreamElements}; }
  Ledger ledger_;
  Stream stream_{.ledger = &ledger_};
  std::unique_ptr<Queue> queue_;
};
INSTANTIATE_TEST_SUITE_P(Machine, CudaStream, ::testing::ValuesIn(kOrders),
                         [](const auto& tested) { return kOrderNames[static_cast<int>(tested.param)]; });

TEST_P(CudaStream, UploadsFillsAndDownloads) {
  Buffer pinned = staging_buffer(stream_, 4 * 256);
  const auto in_slot = [&](int slot) { return pinned.tensor(256 * slot, DType::int64, shape()); };
  Buffer buffer(DeviceKind::cuda, 512, ledger_, "parameters");
  const Tensor kept = buffer.tensor(0, DType::int64, shape());
  const int64_t arena_bytes = 2048;
  Arena arena(stream_, "arena", {{"arena", arena_bytes}}, "activations");
  Event uploaded, done;
  for (int round = 0; round < 4; ++round) {
    const Tensor source = in_slot(round % 2), target = in_slot(2 + round % 2);
    uploaded.wait_on_host();
    for (int i = 0; i < kStreamElements; ++i) source.host_data<int64_t>()[i] = 100 * round + i;
    {
      const ArenaScope scope(arena);
      const Tensor x = arena.allocate(DType::int64, shape());
      upload(stream_, source, x);
      uploaded.record(stream_, true);
      fill_zero(stream_, x.rows(0, 2));
      download(stream_, x, target);
    }
    done.record(stream_, true);
    done.wait_on_host();
    for (int i = 0; i < kStreamElements; ++i) EXPECT_EQ(target.host_data<int64_t>()[i], i < 2 ? 0 : 100 * round + i);
  }
  EXPECT_GE(done.seconds_since(uploaded), 0);
  download(stream_, kept, in_slot(2));
  finish(stream_);
  for (int i = 0; i < kStreamElements; ++i) EXPECT_EQ(in_slot(2).host_data<int64_t>()[i], 0) << "of a new buffer";
}

TEST_P(CudaStream, SiblingsWaitForEvents) {
  const std::unique_ptr<Queue> other_queue = queue_->sibling("exchange");
  Stream other = stream_;
  other.queue = other_queue.get();
  other.cuda = &static_cast<CudaQueue&>(*other_queue).context();
  Buffer pinned = staging_buffer(stream_, 512), buffer(DeviceKind::cuda, 256, ledger_, "gradients");
  const Tensor source = pinned.tensor(0, DType::int64, shape()), target = pinned.tensor(256, DType::int64, shape());
  const Tensor x = buffer.tensor(0, DType::int64, shape());
  for (int i = 0; i < kStreamElements; ++i) source.host_data<int64_t>()[i] = 7 * i;
  Event there;
  upload(stream_, source, x);
  there.record(stream_);
  there.wait(other);
  download(other, x, target);
  finish(other);
  for (int i = 0; i < kStreamElements; ++i) EXPECT_EQ(target.host_data<int64_t>()[i], 7 * i);
  finish(stream_);
}

TEST_P(CudaStream, AQueueEndsBehindItsOperations) {
  std::unique_ptr<Queue> queue = queue_->sibling("short");
  bool done = false;
  run_in_stream(static_cast<CudaQueue&>(*queue).context().stream, [&done] { done = true; });
  queue.reset();
  EXPECT_TRUE(done);
}

// A mark's event is not recorded again while somebody holds it.
TEST_P(CudaStream, TimesAreBetweenTheirMarks) {
  constexpr std::chrono::milliseconds kPause(2);
  Event before, behind;
  before.record(stream_, true);
  before.wait_on_host();
  std::this_thread::sleep_for(kPause);
  behind.record(stream_, true);
  behind.wait_on_host();
  EXPECT_GE(behind.seconds_since(before), std::chrono::duration<double>(kPause).count());
}

// Such a thread would get a context on the first GPU.
TEST(CudaMarks, AreAskedByThreadsThatChoseNoDevice) {
  restart_device({});
  cudaSetDevice(1);
  {
    CudaQueue queue("of the second GPU");
    const std::shared_ptr<Mark> mark = queue.mark();
    std::string fault;
    std::thread asks([&] {
      try {
        (void)mark->reached();
        mark->wait();
      } catch (const std::exception& error) {
        fault = error.what();
      }
    });
    asks.join();
    EXPECT_EQ(fault, "");
  }
  cudaSetDevice(0);
}

TEST_P(CudaStream, RunsNoFunctionOfTheHost) {
  EXPECT_ERROR(do_in(stream_, [] {}), ExitCode::crash, "CUDA queue compute cannot run host functions");
}

TEST_P(CudaStream, TellsWhatAnOperationThrew) {
  const auto queue = queue_->sibling("failing");
  run_in_stream(static_cast<CudaQueue&>(*queue).context().stream, [] { throw_crash("a barrier in a branch"); });
  const std::shared_ptr<Mark> mark = queue->mark();
  EXPECT_ERROR(mark->wait(), ExitCode::crash, "cudaEventSynchronize: a barrier in a branch (cudaErrorLaunchFailure)");
  EXPECT_TRUE(mark->reached());
}

TEST_P(CudaStream, MemoryThatIsNotThereIsAnErrorOfTheUser) {
  const Buffer held(DeviceKind::cuda, kDeviceBytes / 2, ledger_, "parameters");
  EXPECT_ERROR(Buffer(DeviceKind::cuda, kDeviceBytes, ledger_, "activations"), ExitCode::bad_input,
               "not enough memory: 1048576 bytes are needed for activations, and this rank already uses 524288 bytes; "
               "524288 of the GPU's 1048576 bytes are free; lower");
  EXPECT_ERROR(staging_buffer(stream_, int64_t{1} << 60), ExitCode::bad_input, "bytes are needed for staging");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(ledger_.memory_total(), kDeviceBytes / 2);
}

TEST_P(CudaStream, MemoryThatIsFreeIsTold) {
  EXPECT_EQ(cuda::device_memory().available, kDeviceBytes);
  const Buffer held(DeviceKind::cuda, kDeviceBytes / 4, ledger_, "parameters");
  EXPECT_EQ(cuda::device_memory().available, kDeviceBytes - kDeviceBytes / 4);
  EXPECT_EQ(cuda::device_memory().total, kDeviceBytes);
}

// If nobody has waited, the emulator reports that an operation accesses freed memory.
TEST_P(CudaStream, MemoryOfAFailureIsFreedBehindItsOperations) {
  const auto fail = [&] {
    const Buffer buffer(DeviceKind::cuda, 256, ledger_, "parameters");
    fill_zero(stream_, buffer.tensor(0, DType::int64, shape()));
    throw_crash("a failure");
  };
  EXPECT_ERROR(fail(), ExitCode::crash, "a failure");
  finish(stream_);
}

TEST_P(CudaStream, MemoryIsOfTheDevice) {
  const Buffer buffer(DeviceKind::cuda, 256, ledger_, "parameters");
  EXPECT_ERROR(buffer.tensor(0, DType::int64, shape()).host_data<int64_t>(), ExitCode::crash, "reads memory of cuda");
}

TEST(CudaDevices, AreThoseOfTheRanksNumbers) {
  restart_device({});
  const int count = cuda_devices();
  ASSERT_GE(count, 2);
  for (const int rank : {1, count - 1, count, 0}) {
    Stream stream;
    const std::unique_ptr<Queue> queue = start_cuda(stream, {.local_rank = rank});
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, rank % count) << "of rank " << rank;
  }
}

}  // namespace
}  // namespace shiftron
