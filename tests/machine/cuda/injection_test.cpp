// Calls that fail on request: which one does, what it returns, and what a lost device does.
#include "machine/cuda/injection.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "core/call_cuda.h"
#include "expect_error.h"
#include "kernels/device_cuda.h"
#include "machine/cuda/streams.h"

namespace shiftron::machine {
namespace {

using ::testing::Pair;
using ::testing::StrEq;
using ::testing::UnorderedElementsAre;

std::shared_ptr<Injection> failing(CallKind kind, int64_t number) {
  return std::make_shared<Injection>(kind, number);
}

TEST(Injection, TheNumberedCallOfItsKindFailsOnce) {
  Injection injection(CallKind::copy, 2);
  EXPECT_FALSE(injection.strikes(CallKind::copy, "first"));
  EXPECT_FALSE(injection.strikes(CallKind::event, "other"));
  EXPECT_EQ(injection.struck(), nullptr);
  EXPECT_TRUE(injection.strikes(CallKind::copy, "second"));
  EXPECT_FALSE(injection.strikes(CallKind::copy, "third"));
  EXPECT_THAT(injection.struck(), StrEq("second"));
  EXPECT_EQ(injection.counted(CallKind::copy), 3);
  EXPECT_EQ(injection.counted(CallKind::event), 1);
  Injection any(2);
  EXPECT_FALSE(any.strikes(CallKind::copy, "first"));
  EXPECT_TRUE(any.strikes(CallKind::event, "second"));
}

TEST(Injection, TheEnvironmentNamesRankKindAndNumber) {
  const auto strikes = [](const std::string& text, int rank) {
    const auto injection = injection_from(text, rank);
    injection->strikes(CallKind::event, "event");
    injection->strikes(CallKind::stream, "stream 1");
    injection->strikes(CallKind::stream, "stream 2");
    return std::string(injection->struck() == nullptr ? "" : injection->struck());
  };
  EXPECT_EQ(strikes("2", 5), "stream 1");
  EXPECT_EQ(strikes("stream:2", 5), "stream 2");
  EXPECT_EQ(strikes("5/stream:2", 5), "stream 2");
  EXPECT_EQ(strikes("5/1", 5), "event");
  EXPECT_EQ(strikes("5/1", 4), "");
  EXPECT_EQ(strikes("copy:1", 0), "");
  EXPECT_ERROR(injection_from("streams:2", 0), ExitCode::bad_input, "no call is of kind streams");
  EXPECT_ERROR(injection_from("stream", 0), ExitCode::bad_input, "[RANK/][KIND:]NUMBER");
}

// Each call returns what the real one would.
TEST(Injection, CallsReturnTheirErrors) {
  restart_device({});
  const auto before = left_behind();  // tests of faults leave something
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  {
    const InjectionScope scope(failing(CallKind::allocation, 1));
    EXPECT_EQ(cudaMalloc(&memory, 256), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMalloc(&memory, 256), cudaSuccess);
  }
  {
    const InjectionScope scope(failing(CallKind::stream, 1));
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  {
    const InjectionScope scope(failing(CallKind::event, 2));
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDefault), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  }
  {
    const InjectionScope scope(failing(CallKind::copy, 1));
    EXPECT_EQ(cudaMemsetAsync(memory, 0, 256, stream), cudaErrorInvalidValue);
  }
  {
    const InjectionScope scope(failing(CallKind::device, 1));
    int count = 7;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    EXPECT_EQ(count, 0);
  }
  {
    const InjectionScope scope(failing(CallKind::product, 1));
    cublasLtHandle_t handle = nullptr;
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
  }
  {
    const InjectionScope scope(failing(CallKind::attention, 1));
    cudnnHandle_t handle = nullptr;
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_NOT_INITIALIZED);
  }
  {
    const InjectionScope scope(failing(CallKind::collective, 1));
    ncclUniqueId id{};
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
  }
  EXPECT_THAT(runtime_objects(), UnorderedElementsAre(Pair("streams", 1), Pair("events", 1), Pair("allocations", 1),
                                                      Pair("pinned allocations", 0)));
  EXPECT_NE(left_behind(), before);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(left_behind(), before);
}

__global__ void add_one(float* to) {
  to[threadIdx.x] += 1;
}

// A kernel fails when it runs; then everything does, for ever, and what is given back is given back.
TEST(Injection, AFailedKernelLosesTheDevice) {
  restart_device({});
  const auto before = left_behind();
  const auto injection = failing(CallKind::kernel, 2);
  const InjectionScope scope(injection);
  void *memory = nullptr, *more = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 32 * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, 32 * sizeof(float), stream), cudaSuccess);
  cuda::launch_kernel("add_one", add_one, {1, 1}, 32, stream, static_cast<float*>(memory));
  EXPECT_EQ(cudaMalloc(&more, 256), cudaSuccess);  // nothing has run
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_THAT(cudaGetErrorString(cudaErrorLaunchFailure), StrEq("unspecified launch failure"));
  void* none = nullptr;
  EXPECT_EQ(cudaMalloc(&none, 256), cudaErrorLaunchFailure);
  EXPECT_ERROR(cuda::launch_kernel("add_one", add_one, {1, 1}, 32, stream, static_cast<float*>(memory)),
               ExitCode::crash, "kernel add_one, grid 1 x 1, blocks of 32: unspecified launch failure");
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  cudaStreamDestroy(stream);
  cudaFree(memory);
  cudaFree(more);
  EXPECT_EQ(left_behind(), before);
}

// As the message of a failure that is reported late advises.
TEST(Injection, ALaunchThatBlocksIsNamed) {
  restart_device({});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  const InjectionScope scope(failing(CallKind::kernel, 1));
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  EXPECT_ERROR(cuda::launch_kernel("add_one", add_one, {1, 1}, 32, stream, static_cast<float*>(nullptr)),
               ExitCode::crash, "kernel add_one, grid 1 x 1, blocks of 32: unspecified launch failure");
  unsetenv("CUDA_LAUNCH_BLOCKING");
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

TEST(Injection, ALaunchThatIsRefusedNamesItsGrid) {
  restart_device({});
  const InjectionScope scope(failing(CallKind::launch, 1));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  EXPECT_ERROR(cuda::launch_kernel("add_one", add_one, {3, 2}, 64, stream, static_cast<float*>(nullptr)),
               ExitCode::crash, "kernel add_one, grid 3 x 2, blocks of 64: too many resources requested for launch");
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaStreamDestroy(stream);
}

// As a launch's first question of its kernel ends on a GPU that the build has no code for.
TEST(Injection, AGpuOfAnotherKindIsTheUsersFault) {
  for (const cudaError_t status : {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction}) {
    EXPECT_ERROR(cuda::check_call(status, "cudaFuncGetAttributes"), ExitCode::bad_input,
                 "this build has no code for this GPU, which needs compute capability 8.0 or later");
  }
}

}  // namespace
}  // namespace shiftron::machine
