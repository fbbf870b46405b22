// How much a test reads.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace shiftron {

// Bytes that this process has had from reads of files; 0 where the system does not count them.
inline uint64_t bytes_read() {
  std::ifstream input("/proc/self/io");
  uint64_t bytes = 0;
  for (std::string word; input >> word;) {
    if (word == "rchar:") input >> bytes;
  }
  return bytes;
}

}  // namespace shiftron
