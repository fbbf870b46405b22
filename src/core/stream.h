// Stream: where a kernel runs and who counts its cost; the first argument of every kernel.
#pragma once

#include "core/ledger.h"
#include "core/tensor.h"

namespace shiftron {

// Which CPU bodies run: the plain-loop specification (oracle; always for float64) or the fast ones.
enum class Bodies { fast, specification };

struct Stream {
  DeviceKind device = DeviceKind::cpu;
  Ledger* ledger = nullptr;  // required
  int threads = 1;           // of the CPU bodies
  Bodies bodies = Bodies::fast;
  bool bfloat16_matmul = true;  // false: bfloat16 storage, products in float32 (processors on which that is faster)
  bool bfloat16_tiles = true;   // the same of attention's tiles and of weight gradients
  bool timed = false;           // the ledger gets the time of every kernel
};

}  // namespace shiftron
