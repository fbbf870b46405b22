// What an operation reads and writes, as ThreadSanitizer is told of it.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace shiftron {

// In a build with ThreadSanitizer: the calling thread reads, or writes, a tensor now; row by row where it is strided.
void state_read(const ConstTensor& tensor);
void state_write(const Tensor& tensor);

// Of one argument of an operation: what may be written is taken as written.
inline void state_argument(const ConstTensor& tensor) { state_read(tensor); }
inline void state_argument(const Tensor& tensor) { state_write(tensor); }
template <typename Other>
void state_argument(const Other&) {}  // numbers
template <typename Argument>
void state_argument(const std::vector<Argument>& list) {
  for (const Argument& argument : list) state_argument(argument);
}

}  // namespace shiftron
