// Correct kernels, and the same ones with an injected fault: each fault must be found by the processor, by a wrong
// value, or by a sanitizer.
#include "cuda/processor.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/sanitizer.h"
#include "cuda/streams.h"
#include "kernels/device_cuda.h"

namespace shiftron::machine {
namespace {

using cuda::kWarp;
using cuda::warp_sum;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

enum class Fault {
  none,
  missing_barrier,
  slots_reused_without_a_barrier,
  slot_that_nobody_wrote,
  one_partial_of_all_blocks,
  mask_of_half_a_warp,
  barrier_in_a_divergent_branch,
  different_barriers,
  ends_before_a_barrier,
  ends_while_others_wait,
  lane_ends_before_a_shuffle,
  lane_ends_while_others_wait,
  shuffle_from_outside_of_the_mask,
  lanes_with_different_masks,
  lanes_at_different_places,
  shuffle_against_a_barrier,
  overrun_of_shared_memory,
  too_much_shared_memory,
  exception,
  column_beyond_the_row,
  misaligned_pack,
};

constexpr int kThreads = 64;
constexpr int64_t kRows = 6, kColumns = 97;

template <Fault fault>
__device__ float block_sum(float value, float (&slots)[2]) {
  const unsigned warp = threadIdx.x / kWarp;
  value = warp_sum(value);
  const bool writes = fault != Fault::slot_that_nobody_wrote || warp == 0;
  if (threadIdx.x % kWarp == 0 && writes) slots[warp] = value;
  if (fault != Fault::missing_barrier) __syncthreads();
  const float sum = slots[0] + slots[1];
  if (fault != Fault::slots_reused_without_a_barrier) __syncthreads();
  return sum;
}

// Where threads do not do the same.
template <Fault fault>
__device__ float with_others(float value) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const unsigned lane = threadIdx.x % kWarp;
  if constexpr (fault == Fault::mask_of_half_a_warp) return __shfl_xor_sync(0xFFFFu, value, 1);
  if constexpr (fault == Fault::barrier_in_a_divergent_branch) {
    if (lane < 5) __syncthreads();
    return __shfl_xor_sync(kAll, value, 1);
  }
  if constexpr (fault == Fault::shuffle_against_a_barrier) {
    if (lane >= 5) return __shfl_xor_sync(kAll, value, 1);
    __syncthreads();
  }
  if constexpr (fault == Fault::different_barriers) {
    if (threadIdx.x < kWarp) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  }
  if constexpr (fault == Fault::shuffle_from_outside_of_the_mask) {
    return __shfl_xor_sync(lane < 16 ? 0xFFFFu : 0xFFFF0000u, value, 16);
  }
  if constexpr (fault == Fault::lanes_with_different_masks)
    return __shfl_xor_sync(lane < 16 ? kAll : 0xFFFF0001u, value, 1);
  if constexpr (fault == Fault::lanes_at_different_places) {
    if (lane < 16) {
      return __shfl_xor_sync(kAll, value, 1);
    } else {
      return __shfl_xor_sync(kAll, value, 1);
    }
  }
  return value;
}

// sums[row] = Σ x, squares[row] = Σ x²; partial[row % 2] = Σ x of the last such row.
template <Fault fault>
__global__ void row_sums(const float* x, float* sums, float* squares, float* partial) {
  SHARED_ARRAY(float, slots, [2]);
  const int64_t row = blockIdx.x;
  if (fault == Fault::ends_before_a_barrier && threadIdx.x == 40) return;
  if (fault == Fault::lane_ends_before_a_shuffle && threadIdx.x == 3) return;
  float sum = 0, square = 0;
  const int64_t columns = kColumns + (fault == Fault::column_beyond_the_row && row == kRows - 1 ? 1 : 0);
  for (int64_t j = threadIdx.x; j < columns; j += kThreads) {
    sum += x[row * kColumns + j];
    square += x[row * kColumns + j] * x[row * kColumns + j];
  }
  if (fault == Fault::lane_ends_while_others_wait) {
    __syncwarp();
    if (threadIdx.x % kWarp == 31) return;
  }
  sum = block_sum<fault>(with_others<fault>(sum), slots);
  square = block_sum<fault>(square, slots);
  if (fault == Fault::ends_while_others_wait && threadIdx.x == 40) return;
  if (fault == Fault::ends_while_others_wait) __syncthreads();
  if (fault == Fault::overrun_of_shared_memory && threadIdx.x == 7) {
    volatile float* const beyond = &slots[0];
    beyond[4 + row % 4] = 1;
  }
  if (fault == Fault::exception && threadIdx.x == 7) throw_crash("out of patience");
  if (threadIdx.x != 0) return;
  sums[row] = sum;
  squares[row] = square;
  partial[fault == Fault::one_partial_of_all_blocks ? 0 : row] = sum;
}

template <Fault fault>
__global__ void wide_reads(const float* x, float* y) {
  const float* from = x + 4 * threadIdx.x + (fault == Fault::misaligned_pack ? 1 : 0);
  cuda::store_elements(y + 4 * threadIdx.x, cuda::load_elements<4>(from));
}

template <int kCount>
__global__ void much_shared_memory(float* y) {
  SHARED_ARRAY(float, first, [1024]);
  SHARED_ARRAY(float, rest, [kCount]);
  first[threadIdx.x] = 1;
  rest[threadIdx.x] = 2;
  y[threadIdx.x] = first[threadIdx.x] + rest[threadIdx.x];
}

float value_at(int64_t i) {
  return static_cast<float>(i % 13 - 5);
}

struct Sums {
  std::vector<float> sums, squares, partial;
  bool operator==(const Sums&) const = default;
};

Sums right() {
  Sums all{std::vector<float>(kRows), std::vector<float>(kRows), std::vector<float>(kRows)};
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const auto row = static_cast<size_t>(i / kColumns);
    all.sums[row] += value_at(i);
    all.squares[row] += value_at(i) * value_at(i);
  }
  all.partial = all.sums;
  return all;
}

// Numbers small enough for every order of sums to be exact.
template <Fault fault>
Sums run() {
  std::vector<float> x(kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = value_at(static_cast<int64_t>(i));
  const std::vector<float> nothing(kRows, NAN);
  Sums all{nothing, nothing, nothing};
  execute_grid("row_sums", kRows, 1, kThreads,
               [&] { row_sums<fault>(x.data(), all.sums.data(), all.squares.data(), all.partial.data()); });
  return all;
}

constexpr std::array kWarpOrders = {WarpOrder::forward, WarpOrder::reverse, WarpOrder::random, WarpOrder::stay,
                                    WarpOrder::mixed};
constexpr const char* kWarpOrderNames[] = {"forward", "reverse", "random", "stay", "mixed"};
constexpr int kSeeds = sanitizer::kThreads ? 1 : 4;  // its fibers are slow to make

class ProcessorTest : public ::testing::Test {
 protected:
  void TearDown() override { set_processor_options(before_); }

 private:
  const ProcessorOptions before_ = processor_options();
};

template <typename Body>
void in_every_order(const Body& body) {
  for (const WarpOrder order : kWarpOrders) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(std::string(kWarpOrderNames[static_cast<int>(order)]) + ", seed " + std::to_string(seed));
      set_processor_options({order, seed});
      body();
    }
  }
}

TEST_F(ProcessorTest, RunsWhatIsRightInEveryOrder) {
  in_every_order([] { EXPECT_EQ(run<Fault::none>(), right()); });
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_parts(const std::string& said, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << said << "\nexpected: " << part;
}

// Says kernel, block, threads and the line of both, and the processor serves the next grid.
template <Fault fault>
void expect_fault(const std::vector<std::string>& parts) {
  in_every_order([&] {
    const std::string said = message([] { run<fault>(); });
    expect_parts(said, {"kernel row_sums, block (", "; thread "});
    expect_parts(said, parts);
    EXPECT_EQ(run<Fault::none>(), right());
  });
}

const std::string kHere = std::string(" at ") + __FILE__ + ":";

// found[thread], from what lanes exchange: their numbers, times 10 except for votes.
__global__ void exchange(int* found) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, brought = 10 * lane;
  const unsigned half = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  int* const out = found + 9 * threadIdx.x;
  out[0] = __shfl_sync(kAll, brought, 7);
  out[1] = __shfl_sync(kAll, brought, 3, 8);
  out[2] = __shfl_up_sync(kAll, brought, 1);
  out[3] = __shfl_down_sync(kAll, brought, 2, 4);
  out[4] = __shfl_xor_sync(half, brought, 5);
  out[5] = static_cast<int>(__ballot_sync(half, lane % 3 == 0));
  out[6] = __any_sync(kAll, lane == 9) + 10 * __any_sync(kAll, lane == 99);
  out[7] = __all_sync(kAll, lane < 32) + 10 * __all_sync(kAll, lane < 31);
  double wide = brought / 4.0;
  out[8] = __shfl_xor_sync(kAll, wide, 31) == 10 * (31 - lane) / 4.0;
}

TEST_F(ProcessorTest, LanesExchangeWhatTheyBring) {
  in_every_order([] {
    std::vector<int> found(9 * kThreads);
    execute_grid("exchange", 1, 1, kThreads, [&] { exchange(found.data()); });
    for (int thread = 0; thread < kThreads; ++thread) {
      const int lane = thread % kWarp;
      const auto ballot = static_cast<int>(lane < 16 ? 0x00009249u : 0x49240000u);
      const std::array<int, 9> expected = {70,
                                           10 * (lane / 8 * 8 + 3),
                                           10 * (lane == 0 ? 0 : lane - 1),
                                           10 * (lane % 4 < 2 ? lane + 2 : lane),
                                           10 * (lane ^ 5),
                                           ballot,
                                           1,
                                           1,
                                           1};
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[static_cast<size_t>(thread) * 9 + i], expected[i]) << "thread " << thread << ", value " << i;
      }
    }
  });
}

TEST_F(ProcessorTest, FindsThreadsThatDoNotMeet) {
  expect_fault<Fault::mask_of_half_a_warp>({"is not in its mask", "__shfl_xor_sync of lanes 0xffff" + kHere});
  expect_fault<Fault::barrier_in_a_divergent_branch>(
      {"barrier in a divergent branch", "__syncthreads" + kHere, "__shfl_xor_sync of lanes 0xffffffff" + kHere});
  expect_fault<Fault::shuffle_against_a_barrier>(
      {"barrier in a divergent branch", "__syncthreads" + kHere, "__shfl_xor_sync of lanes 0xffffffff" + kHere});
  expect_fault<Fault::different_barriers>({"not the same barrier", "__syncthreads" + kHere});
  expect_fault<Fault::ends_before_a_barrier>({"ended", "thread 40 ended", "__shfl_xor_sync"});
  expect_fault<Fault::ends_while_others_wait>(
      {"a thread ended that others wait for", "thread 40 ended, last in __syncthreads", "in __syncthreads" + kHere});
  expect_fault<Fault::lane_ends_before_a_shuffle>({"ended", "thread 3 ended without having met others"});
  expect_fault<Fault::lane_ends_while_others_wait>({"ended", "ended, last in __syncwarp of lanes 0xffffffff" + kHere});
  expect_fault<Fault::shuffle_from_outside_of_the_mask>({"from a lane outside of the mask", "of lanes 0xffff"});
  expect_fault<Fault::lanes_with_different_masks>({"different masks", "0xffff0001" + kHere, "0xffffffff" + kHere});
  expect_fault<Fault::lanes_at_different_places>({"lanes meet at different places", "of lanes 0xffffffff" + kHere});
  expect_fault<Fault::exception>({"an exception", "thread 7", "out of patience"});
}

TEST_F(ProcessorTest, FindsBlocksThatNoDeviceHas) {
  std::vector<float> y(kThreads);
  const auto run_much = [&](auto kernel) {
    execute_grid("much", 1, 1, kThreads, [&] { kernel(y.data()); });
    return y[5];
  };
  EXPECT_EQ(run_much(much_shared_memory<11 * 1024>), 3);
  expect_parts(message([&] { run_much(much_shared_memory<11 * 1024 + 4>); }),
               {"kernel much", "more than 49152 bytes of shared memory, rest" + kHere});
  const auto launch_blocks = [](int64_t x, int64_t y_blocks, int block) {
    return message([=] { launch({.name = "wide", .x = x, .y = y_blocks, .block = block}, nullptr, [] {}); });
  };
  if (!sanitizer::kThreads) {
    EXPECT_EQ(message([] { execute_grid("wide", 1, 1, 1024, [] {}); }), "no error");
  }
  expect_parts(launch_blocks(1, 1, 1056), {"wide: blocks of 1056 threads"});
  expect_parts(launch_blocks(1, 1, 40), {"wide: blocks of 40 threads"});
  expect_parts(launch_blocks(1, 65536, 32), {"wide: grid of 1 x 65536"});
}

TEST_F(ProcessorTest, ThreadsOfEarlyGridsWaitForEarlierKernels) {
  in_every_order([] {
    const auto run = [](bool early, unsigned who_does_not) {
      return message([=] {
        execute_grid(
            "early", 2, 1, kThreads,
            [=] {
              if (threadIdx.x != who_does_not) cudaGridDependencySynchronize();
            },
            0, true, early);
      });
    };
    EXPECT_EQ(run(true, kThreads), "no error");
    EXPECT_EQ(run(false, 40), "no error");
    expect_parts(run(true, 40), {"kernel early, block (", "did not wait for earlier kernels", "thread 40"});
  });
}

template <int kBeyond>
__global__ void sum_of_bytes_of_launch(float* y) {
  SHARED_BYTES(float, row);
  SHARED_ARRAY(float, own, [1]);
  if (threadIdx.x == 0) own[0] = std::isnan(row[0]) ? 1 : 0;  // which no other thread touches before the barrier
  row[threadIdx.x + kBeyond] = 2;
  __syncthreads();
  y[blockIdx.x * kThreads + threadIdx.x] = row[kThreads - 1 - threadIdx.x] + own[0];
}

TEST_F(ProcessorTest, BlocksHaveTheBytesOfTheirLaunch) {
  constexpr int64_t kBytes = kThreads * sizeof(float);
  const auto run_bytes = [](auto kernel, int64_t bytes) {
    std::vector<float> y(2 * kThreads);
    execute_grid(
        "bytes", 2, 1, kThreads, [&] { kernel(y.data()); }, bytes);
    return y;
  };
  EXPECT_EQ(run_bytes(sum_of_bytes_of_launch<0>, kBytes), std::vector<float>(2 * kThreads, 3));
  EXPECT_EQ(run_bytes(sum_of_bytes_of_launch<0>, (227 << 10) - 16), std::vector<float>(2 * kThreads, 3));
  expect_parts(message([&] { run_bytes(sum_of_bytes_of_launch<0>, 227 << 10); }),
               {"more than 232448 bytes of shared memory, own"});
  expect_parts(message([&] { run_bytes(sum_of_bytes_of_launch<0>, 228 << 10); }),
               {"more than 232448 bytes of shared memory, row"});
  if (!kAddressSanitizer) {
    expect_parts(message([&] { run_bytes(sum_of_bytes_of_launch<1>, kBytes); }),
                 {"written beyond a shared array, row" + kHere});
  }
  // Without an allowance arrays count too.
  const auto without_allowance = [](int64_t bytes) {
    return message([&] {
      std::vector<float> y(kThreads);
      execute_grid(
          "bytes", 1, 1, kThreads, [&] { sum_of_bytes_of_launch<0>(y.data()); }, bytes, false);
    });
  };
  EXPECT_EQ(without_allowance((48 << 10) - 16), "no error");
  expect_parts(without_allowance(48 << 10), {"more than 49152 bytes of shared memory, own"});
  // What a launch may ask for, it must be allowed.
  const void* const kernel = reinterpret_cast<const void*>(sum_of_bytes_of_launch<0>);
  const auto launch_bytes = [&](int64_t bytes) {
    return message([&] { launch({.name = "bytes", .kernel = kernel, .block = 32, .shared = bytes}, nullptr, [] {}); });
  };
  expect_parts(launch_bytes((48 << 10) + 1), {"bytes: 49153 bytes of shared memory, of which 49152 are allowed"});
  EXPECT_NE(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10), cudaSuccess);
  expect_parts(launch_bytes((100 << 10) + 1), {"of which 102400 are allowed"});
}

// How many of all runs in an order show a wrong value.
template <Fault fault>
std::array<int, kWarpOrders.size()> wrong_values(const char* name) {
  std::array<int, kWarpOrders.size()> wrong{};
  in_every_order([&] { wrong[static_cast<size_t>(processor_options().order)] += run<fault>() != right(); });
  std::printf("%-32s wrong of %d seeds:", name, kSeeds);
  for (size_t i = 0; i < wrong.size(); ++i) std::printf(" %s %d", kWarpOrderNames[i], wrong[i]);
  std::printf("\n");
  return wrong;
}

TEST_F(ProcessorTest, AnOrderShowsMissingBarriers) {
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  const auto stay = static_cast<size_t>(WarpOrder::stay), mixed = static_cast<size_t>(WarpOrder::mixed);
  for (const auto& wrong : {wrong_values<Fault::missing_barrier>("missing barrier"),
                            wrong_values<Fault::slots_reused_without_a_barrier>("slots reused without a barrier"),
                            wrong_values<Fault::slot_that_nobody_wrote>("slot that nobody wrote"),
                            wrong_values<Fault::one_partial_of_all_blocks>("one partial of all blocks")}) {
    EXPECT_EQ(wrong[stay], kSeeds);
    EXPECT_GT(wrong[mixed], 0);
  }
}

TEST_F(ProcessorTest, SharedArraysAreUndefinedInEveryBlock) {
  in_every_order([] {
    for (const float sum : run<Fault::slot_that_nobody_wrote>().sums) EXPECT_TRUE(std::isnan(sum));
  });
}

TEST_F(ProcessorTest, FindsWritesBeyondSharedArrays) {
  if (kAddressSanitizer) GTEST_SKIP() << "AddressSanitizer reports them";
  if (sanitizer::kThreads) GTEST_SKIP() << "would be reported";
  in_every_order([] {
    expect_parts(message([] { run<Fault::overrun_of_shared_memory>(); }),
                 {"kernel row_sums, block (0, 0)", "written beyond a shared array, slots" + kHere});
  });
}

// Each kernel of a template is loaded when it is first launched.
template <int number>
void numbered() {}

TEST_F(ProcessorTest, LoadingWaitsForEachKernelOfAName) {
  restart_device({.order = Order::late});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  std::atomic<int> threads = 0;
  const auto launch_one = [&](void (*kernel)()) {
    launch({.name = "numbered", .kernel = reinterpret_cast<const void*>(kernel), .block = kWarp}, stream,
           [&threads] { ++threads; });
  };
  let_loading_wait(true);
  launch_one(numbered<1>);
  launch_one(numbered<1>);
  EXPECT_EQ(threads, 0);
  launch_one(numbered<2>);
  EXPECT_EQ(threads, 2 * kWarp);
  let_loading_wait(false);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaStreamDestroy(stream);
}

// ---- what sanitizers report -----------------------------------------------------------------------------------------
class ProcessorDeathTest : public ProcessorTest {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

template <Fault fault>
void expect_race() {
  for (const WarpOrder order : kWarpOrders) {
    EXPECT_EXIT((set_processor_options({order, 1}), run<fault>(), std::exit(0)), ::testing::ExitedWithCode(66),
                "data race")
        << kWarpOrderNames[static_cast<int>(order)];
  }
}

TEST_F(ProcessorDeathTest, RacesAreReportedInEveryOrder) {
  if (!sanitizer::kThreads) GTEST_SKIP() << "for builds with ThreadSanitizer";
  expect_race<Fault::missing_barrier>();
  expect_race<Fault::slots_reused_without_a_barrier>();
  expect_race<Fault::one_partial_of_all_blocks>();
}

TEST_F(ProcessorDeathTest, WhatIsRightIsNotReported) {
  for (const WarpOrder order : kWarpOrders) {
    EXPECT_EXIT((set_processor_options({order, 1}), run<Fault::none>(), std::exit(0)), ::testing::ExitedWithCode(0),
                "^$")
        << kWarpOrderNames[static_cast<int>(order)];
  }
}

TEST_F(ProcessorDeathTest, BytesOfNobodyAreReported) {
  if (!kAddressSanitizer) GTEST_SKIP() << "for builds with AddressSanitizer";
  EXPECT_DEATH(run<Fault::overrun_of_shared_memory>(), "use-after-poison");
  EXPECT_DEATH(run<Fault::column_beyond_the_row>(), "heap-buffer-overflow");
  const auto run_wide = [](auto kernel) {
    std::vector<float> x(4 * kThreads + 4), y(4 * kThreads);
    execute_grid("wide_reads", 1, 1, kThreads, [&] { kernel(x.data(), y.data()); });
  };
  run_wide(wide_reads<Fault::none>);
  EXPECT_DEATH(run_wide(wide_reads<Fault::misaligned_pack>), "misaligned address");
}

}  // namespace
}  // namespace shiftron::machine
