// The rate of the processor's multiply instructions, on operands in the first-level cache.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

struct Peak {
  std::string instruction;
  bool of_bfloat16;
  double operations;  // per second, of all threads at once
};

// Those that this processor has.
std::vector<Peak> processor_peaks(int threads);

}  // namespace shiftron
