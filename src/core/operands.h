// Reports what an operation reads and writes to ThreadSanitizer.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace shiftron {

// With ThreadSanitizer: reports that the calling thread now reads, or writes, a tensor; row by row if it is strided.
void state_read(const ConstTensor& tensor);
void state_write(const Tensor& tensor);

// For one argument of an operation: a tensor that may be written counts as written.
inline void state_argument(const ConstTensor& tensor) { state_read(tensor); }
inline void state_argument(const Tensor& tensor) { state_write(tensor); }
template <typename Other>
void state_argument(const Other&) {}  // numbers
template <typename Argument>
void state_argument(const std::vector<Argument>& list) {
  for (const Argument& argument : list) state_argument(argument);
}

}  // namespace shiftron
