// Python's repr() of floats, its json.dumps() and json.loads().
#include "evaluate/tasks/python_json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "evaluate/tasks/json_pieces.h"

namespace shiftron::python {
namespace {

void append_string(const std::string& text, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    constexpr std::string_view kNamed = "\"\\\n\r\t\f\b";
    constexpr std::string_view kNames = "\"\\nrtfb";
    if (const size_t at = kNamed.find(c); at != std::string_view::npos) {
      out += {'\\', kNames[at]};
    } else if (byte < 0x20) {
      out += {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(const nlohmann::ordered_json& value, size_t depth, std::string& out) {
  const auto new_line = [&](size_t levels) { out.append("\n").append(2 * levels, ' '); };
  if (value.is_string()) return append_string(value.get_ref<const std::string&>(), out);
  if (value.is_number_float()) {
    const double number = value.get<double>();
    out += std::isnan(number) ? "NaN" : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity") : repr(number);
    return;
  }
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  out += value.is_array() ? '[' : '{';
  bool first = true;
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (!first) out += ',';
    first = false;
    new_line(depth + 1);
    if (value.is_object()) {
      append_string(item.key(), out);
      out += ": ";
    }
    append_value(*item, depth + 1, out);
  }
  if (!first) new_line(depth);
  out += value.is_array() ? ']' : '}';
}

}  // namespace

std::string repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  CHECK(written.ec == std::errc(), "a double of more than 32 characters");
  std::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  std::string result;
  if (text.starts_with('-')) {
    result = "-";
    text.remove_prefix(1);
  }
  const size_t mark = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + mark + (text[mark + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (mark > 2) digits += text.substr(2, mark - 2);
  if (exponent < -4 || exponent >= 16) {
    result += digits.substr(0, 1);
    if (digits.size() > 1) result += "." + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    return result + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
  }
  if (exponent < 0) return result + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return result + digits + std::string(whole - digits.size(), '0') + ".0";
  return result + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string json_text(const nlohmann::ordered_json& value) {
  std::string out;
  append_value(value, 0, out);
  return out;
}

nlohmann::ordered_json parse_json(std::string_view text) {
  return nlohmann::ordered_json::parse(with_pieces_replaced(text, [](std::string_view rest) -> JsonPiece {
    for (const std::string_view number : {"NaN", "Infinity", "-Infinity"}) {
      if (rest.starts_with(number)) return {number.size(), "null"};
    }
    return {};
  }));
}

}  // namespace shiftron::python
