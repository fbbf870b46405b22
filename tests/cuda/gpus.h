// What tests need of the host that they run on. The emulator has as many GPUs as are asked for; of real ones, ranks
// that are threads need one each, because NCCL allows one rank of a process per GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "core/queue_cuda.h"

namespace shiftron::testing {

inline bool has_gpus(int ranks) {
#ifdef SHIFTRON_REAL_GPUS
  return cuda_devices() >= ranks;
#else
  return ranks >= 0;
#endif
}

// Whether the calling thread's device has so many bytes free.
inline bool has_gpu_memory([[maybe_unused]] size_t bytes) {
#ifdef SHIFTRON_REAL_GPUS
  size_t free = 0, all = 0;
  return cudaMemGetInfo(&free, &all) == cudaSuccess && free >= bytes;
#else
  return true;
#endif
}

}  // namespace shiftron::testing

// In a test: leaves it, skipped, where it has fewer.
#define NEED_GPUS(ranks) \
  if (!shiftron::testing::has_gpus(ranks)) GTEST_SKIP() << "needs " << (ranks) << " GPUs"
#define NEED_GPU_MEMORY(bytes) \
  if (!shiftron::testing::has_gpu_memory(bytes)) GTEST_SKIP() << "needs " << (bytes) << " bytes of a GPU"
