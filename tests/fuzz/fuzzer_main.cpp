// A target under libFuzzer, which has main().
#include <cstddef>
#include <cstdint>

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shiftron::fuzz::read_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
