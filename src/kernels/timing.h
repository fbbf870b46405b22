// What both measurements of rates need: memory as training has it, and the time of a call.
#pragma once

#include <functional>

#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron {

// Values of a step's size, some of them again and again: a GPU that multiplies zeros draws less power and is faster.
void fill_random(Stream& stream, const Tensor& tensor);

// Bytes a second, read and written together, of copies of so many bytes, a multiple of 16.
double copy_rate(Stream& stream, int64_t bytes);

// Of a call that gives its work to the stream: the shortest of some, behind one that is not timed. Waits for all.
double shortest_seconds(Stream& stream, const std::function<void()>& call);

}  // namespace shiftron
