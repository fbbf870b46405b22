// Numbers from 0 to 1 in rows and columns, as a picture for people: in text and as SVG.
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

// A line a row, a character a value: its tenths, rounded down ("9" from 0.9 on), "·" below 0.1, "?" where it is NaN.
std::string heat_map_text(const HeatMap& map);

// The maps below each other, darker for more; a tooltip says what each box is.
std::string heat_map_svg(const std::string& title, const std::vector<HeatMap>& maps);

}  // namespace shiftron
