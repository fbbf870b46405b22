// What the benchmark programs share.
#pragma once

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "core/check.h"

namespace shiftron {

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// A main function: errors go to stderr under the program's name, their code is returned.
inline int run_program(const char* name, int (*run)(const std::vector<std::string>& arguments), int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return static_cast<int>(error.code());
  }
}

}  // namespace shiftron
