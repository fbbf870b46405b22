// Shared by both measurements of rates: realistic memory contents, and the time of a call.
#pragma once

#include <functional>

#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron {

// Random values as large as in a step, partly repeated: a GPU that multiplies zeros draws less power and is faster.
void fill_random(Stream& stream, const Tensor& tensor);

// Bytes per second, read and written together, of copies of `bytes` bytes; a multiple of 16.
double copy_rate(Stream& stream, int64_t bytes);

// The shortest of several timed runs of a call that launches work on the stream, after one that is not timed. Waits for
// all.
double shortest_seconds(Stream& stream, const std::function<void()>& call);

}  // namespace shiftron
