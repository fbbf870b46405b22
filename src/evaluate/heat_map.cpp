// Coordinates are pixels.
#include "evaluate/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/foreign_text.h"

namespace shiftron {
namespace {

constexpr double kBox = 16, kTop = 44, kAbove = 42, kMargin = 14, kDigit = 7.2;
constexpr int kWhite[] = {255, 255, 255}, kDark[] = {0, 74, 128};

size_t widest(const std::vector<std::string>& labels) {
  size_t width = 0;
  for (const std::string& label : labels) width = std::max(width, label.size());
  return width;
}

std::string label(double x, double y, const std::string& text, const std::string& attributes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes, xml_text(text));
}

std::string colour_of(double value) {
  if (std::isnan(value)) return "#e69f00";
  std::string text = "#";
  for (size_t i = 0; i < 3; ++i) {
    const double part = kWhite[i] + std::clamp(value, 0.0, 1.0) * (kDark[i] - kWhite[i]);
    text += fmt::format("{:02x}", static_cast<int>(std::lround(part)));
  }
  return text;
}

std::string value_text(double value) {
  return std::isnan(value) ? "not finite" : fmt::format("{:.3f}", value);
}

double left_of(const HeatMap& map) {
  return kMargin + kDigit * static_cast<double>(std::max(widest(map.rows), map.row_name.size()) + 1);
}

std::string boxes(const HeatMap& map, double top) {
  const double left = left_of(map);
  std::string text = label(kMargin, top - 22, map.title, " font-size=\"13\"");
  text += label(kMargin, top - 5, map.row_name, " fill=\"#666\"");
  const auto every = static_cast<size_t>(std::ceil(static_cast<double>(widest(map.columns) + 1) * kDigit / kBox));
  for (size_t column = 0; column < map.columns.size(); column += std::max<size_t>(1, every)) {
    text += label(left + kBox * static_cast<double>(column) + 2, top - 5, map.columns[column], " fill=\"#666\"");
  }
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = top + kBox * static_cast<double>(row);
    text += label(kMargin, y + kBox - 4, map.rows[row], " fill=\"#666\"");
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const double value = map.values[row][column];
      const std::string tip = fmt::format("{} {}, {} {}: {}", map.row_name, map.rows[row], map.column_name,
                                          map.columns[column], value_text(value));
      text += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ccc\"><title>{}</title>"
          "</rect>\n",
          left + kBox * static_cast<double>(column), y, kBox, kBox, colour_of(value), xml_text(tip));
    }
  }
  return text;
}

}  // namespace

std::string heat_map_text(const HeatMap& map) {
  const size_t width = std::max(widest(map.rows), map.row_name.size());
  std::string text = fmt::format("{}\n  {:>{}}  {}: {} to {}\n", map.title, map.row_name, width, map.column_name,
                                 map.columns.front(), map.columns.back());
  for (size_t row = 0; row < map.rows.size(); ++row) {
    text += fmt::format("  {:>{}}  ", map.rows[row], width);
    for (const double value : map.values[row]) {
      text += std::isnan(value) ? "?" : value < 0.1 ? "·" : std::to_string(std::min(9, static_cast<int>(value * 10)));
    }
    text += "\n";
  }
  return text;
}

std::string heat_map_svg(const std::string& title, const std::vector<HeatMap>& maps) {
  double width = 2 * kMargin + kDigit * 1.3 * static_cast<double>(title.size()), height = kTop;
  std::string text;
  for (const HeatMap& map : maps) {
    text += boxes(map, height + kAbove);
    height += kAbove + kBox * static_cast<double>(map.rows.size() + 1);
    width = std::max({width, left_of(map) + kBox * static_cast<double>(map.columns.size()) + kMargin,
                      2 * kMargin + kDigit * static_cast<double>(map.title.size())});
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
             "{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n<rect width=\"{0:.0f}\" "
             "height=\"{1:.0f}\" fill=\"#fff\"/>\n",
             width, height + kMargin) +
         label(kMargin, 26, title, " font-size=\"15\"") + text + "</svg>\n";
}

}  // namespace shiftron
