// Stream: where a kernel runs and who counts its cost; the first argument of every kernel.
#pragma once

#include <algorithm>

#include "core/ledger.h"
#include "core/queue.h"
#include "core/tensor.h"

struct CUstream_st;  // cudaStream_t points to it

namespace shiftron {

// Which CPU bodies run: the reference implementation in plain loops (oracle; always for float64) or the fast ones.
enum class Bodies { fast, specification };

// How a CPU computes products of bfloat16. If it cannot run the chosen tiles: products by the library, attention in
// float32.
enum class ProductsBy {
  float32,    // own tiles, inputs widened to float32
  library,    // oneDNN; attention's tiles in float32
  vectors,    // own tiles by vdpbf16ps
  tiles,      // own tiles by tdpbf16ps
  tile_loops  // the same in plain loops, for tests
};
// By class of product; the bits of the results depend on it.
struct Bfloat16Products {
  ProductsBy forward = ProductsBy::library, to_input = ProductsBy::library, to_weight = ProductsBy::vectors,
             attention = ProductsBy::vectors;
  bool operator==(const Bfloat16Products&) const = default;
};

// Options of the CPU's bodies.
struct CpuOptions {
  int threads = 1;
  Bodies bodies = Bodies::fast;
  Bfloat16Products bfloat16{};
};

// What CUDA's bodies run with.
class CudaProducts;
class CudaAttention;
struct CudaContext {
  CUstream_st* stream = nullptr;
  CudaProducts* products = nullptr;    // of cuBLASLt: handle, workspace, and the choice for each shape
  CudaAttention* attention = nullptr;  // of cuDNN: handle, and the choice for each shape
  bool deterministic = false;          // the stream's
  int64_t most_shared = 0;             // bytes of shared memory that a block may be given
};

struct Stream {
  DeviceKind device = DeviceKind::cpu;
  Ledger* ledger = nullptr;  // required
  CpuOptions cpu{};
  Queue* queue = nullptr;                // null: everything is done at once
  CudaContext* cuda = nullptr;           // with CUDA: the queue's
  bool deterministic = false;            // CUDA's bodies give the same bits each time, even if slower
  bool timed = false;                    // the ledger gets the time of every kernel; on a CPU without a queue
  DeviceKind planned = DeviceKind::cpu;  // on meta: the device that the plan is for

  DeviceKind backend() const { return device == DeviceKind::meta ? planned : device; }
};

// Runs a host function in the order of a CPU's stream.
template <typename Function>
void do_in(Stream& stream, Function function) {
  if (stream.queue != nullptr)
    stream.queue->run(function);
  else
    function();
}

// Calls body(0) … body(count − 1), which all do the same amount of work; on meta body(0) stands for all of them.
template <typename Body>
void for_each_identical(Stream& stream, int64_t count, Body body) {
  const int64_t called = stream.device == DeviceKind::meta ? std::min<int64_t>(count, 1) : count;
  if (called == 0) return;
  const Ledger::Repeat repeat(*stream.ledger, count / called);
  for (int64_t i = 0; i < called; ++i) body(i);
}

}  // namespace shiftron
