// A document of a benchmark task with its requests.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "evaluate/tasks/request.h"

namespace shiftron {

struct Item {
  int64_t number = 0;  // in its split, from 0
  nlohmann::ordered_json
      document{};                   // as hashed: the hub's columns in order, with the fields that preparation appended
  std::string target{};             // as hashed: Python's str() of the harness's target
  std::vector<Request> requests{};  // in order of the choices; one if there are no choices
  int64_t gold = -1;                // index of the right choice; −1: there are no choices
  std::vector<std::string> choices{};  // acc_norm divides by their length
  std::vector<std::string> answers{};  // generate: all right answers
  double words = 0, bytes = 0;         // rolling: of the measured text
  std::string where{};                 // FILE:LINE
};

}  // namespace shiftron
