// What tests need of the host that they run on. The machine that stands in for GPUs has as many as are asked for; where
// they are real, ranks that are threads need one each, since NCCL takes one rank of a process for a GPU.
#pragma once

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

}  // namespace shiftron::testing

// In a test: leaves it, skipped, where it has fewer.
#define NEED_GPUS(ranks) \
  if (!shiftron::testing::has_gpus(ranks)) GTEST_SKIP() << "needs " << (ranks) << " GPUs"
