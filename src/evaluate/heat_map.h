// A grid of numbers from 0 to 1 as a picture, in text and as SVG.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

struct HeatMap {
  std::string title;
  std::string row_name, column_name;        // "layer", "head"
  std::vector<std::string> rows, columns;   // their labels
  std::vector<std::vector<double>> values;  // [rows][columns]
};

// One line per row, one character per value: its tenths, rounded down ("9" from 0.9 on), "·" below 0.1, "?" for NaN.
std::string heat_map_text(const HeatMap& map);

// The maps below each other; larger values are darker. Each box has a tooltip with its row, column and value.
std::string heat_map_svg(const std::string& title, const std::vector<HeatMap>& maps);

}  // namespace shiftron
