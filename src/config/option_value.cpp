// Reading and writing of configuration values.
#include "config/option_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

namespace shiftron {
namespace {

// "" or what is wrong: `kind` says what the text should be.
template <typename Number>
std::string number_fault(const std::string& text, Number& value, const char* kind) {
  Number read{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, read);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return kind;
  if (result.ec != std::errc{}) return "is too large or too close to 0 for a floating-point number";
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(read)) return kind;
  }
  value = read;
  return "";
}

template <typename Number>
bool read_number(const std::string& text, Number& value) {
  return number_fault(text, value, "is not a number").empty();
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ',')
      parts.emplace_back();
    else if (letter != ' ')
      parts.back() += letter;
  }
  return parts;
}

// The shortest text that reads back to the same bits; whole numbers without an exponent.
std::string text_of(double value) {
  char buffer[32];
  const bool is_whole = std::abs(value) < 1e15 && value == std::trunc(value);
  const auto result = is_whole ? std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed)
                               : std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

}  // namespace

std::string Limits::fault(double value) const {
  if (!(low_open ? value > low : value >= low)) return (low_open ? "must be > " : "must be >= ") + text_of(low);
  if (!(high_open ? value < high : value <= high)) return (high_open ? "must be < " : "must be <= ") + text_of(high);
  return "";
}

std::string read_value(const std::string& text, int64_t& value) {
  return number_fault(text, value, "is not a whole number");
}
std::string read_value(const std::string& text, int& value) {
  return number_fault(text, value, "is not a whole number");
}
std::string read_value(const std::string& text, double& value) {
  return number_fault(text, value, "is not a finite number");
}
std::string read_value(const std::string& text, std::optional<int64_t>& value) {
  int64_t read = 0;
  const std::string fault = read_value(text, read);
  if (fault.empty()) value = read;
  return fault;
}
std::string read_value(const std::string& text, bool& value) {
  const bool yes = text == "true" || text == "1" || text == "yes" || text == "on";
  if (!yes && text != "false" && text != "0" && text != "no" && text != "off") return "is not one of true, false";
  value = yes;
  return "";
}
std::string read_value(const std::string& text, std::string& value) {
  value = text;
  return "";
}
std::string read_value(const std::string& text, Deterministic& value) {
  const std::string name = text == "false" ? "off" : text == "true" ? "repeat" : text;
  return read_value<Deterministic>(name, value);
}
std::string read_value(const std::string& text, Betas& value) {
  const std::vector<std::string> parts = split_at_commas(text);
  Betas read;
  if (parts.size() != 2 || !read_number(parts[0], read.first) || !read_number(parts[1], read.second)) {
    return "is not two numbers as in 0.9,0.95";
  }
  value = read;
  return "";
}
std::string read_value(const std::string& text, ResumeChoice& value) {
  using Kind = ResumeChoice::Kind;
  ResumeChoice read{.kind = text == "auto" ? Kind::automatic : text == "never" ? Kind::never : Kind::step, .step = 0};
  if (read.kind == Kind::step && !read_number(text, read.step)) return "is not one of auto, never, or a step number";
  value = read;
  return "";
}
std::string read_value(const std::string& text, RankOrder& value) {
  const std::vector<std::string> parts = split_at_commas(text);
  RankOrder read = value;
  bool each_once = parts.size() == read.size();
  for (size_t i = 0; each_once && i < read.size(); ++i) {
    const std::optional<Axis> axis = from_string<Axis>(parts[i]);
    each_once = axis && std::find(read.begin(), read.begin() + i, *axis) == read.begin() + i;
    if (each_once) read[i] = *axis;
  }
  if (!each_once) return "does not name each of " + names_joined<Axis>(", ") + " once, as in tp,pp,cp,dp";
  value = read;
  return "";
}
std::string read_value(const std::string& text, StageRecompute& value) {
  std::vector<RecomputeKind> read;
  for (const std::string& part : split_at_commas(text)) {
    const std::string fault = read_value<RecomputeKind>(part, read.emplace_back());
    if (!fault.empty()) return fault + ", nor a list of these for all stages as in full,selective,none,none";
  }
  value = StageRecompute(read);
  return "";
}
std::string read_value(const std::string& text, std::vector<int64_t>& value) {
  std::vector<int64_t> read;
  if (!text.empty()) {
    for (const std::string& part : split_at_commas(text)) {
      if (!read_number(part, read.emplace_back())) return "is not a list of whole numbers as in 7,7,7,7";
    }
  }
  value = read;
  return "";
}
std::string read_value(const std::string& text, std::vector<DataSource>& value) {
  DataSource source{.directory = text, .weight = 0};
  // What follows a colon in the last part of the path is the weight.
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos && text.find('/', colon) == std::string::npos) {
    source.directory = text.substr(0, colon);
    if (!read_number(text.substr(colon + 1), source.weight) || source.weight <= 0) {
      return "has a weight that is not a positive number (form: path:weight)";
    }
  }
  value.push_back(source);
  return "";
}

std::vector<std::string> write_value(int64_t value) {
  return {std::to_string(value)};
}
std::vector<std::string> write_value(int value) {
  return {std::to_string(value)};
}
std::vector<std::string> write_value(double value) {
  return {text_of(value)};
}
std::vector<std::string> write_value(const std::optional<int64_t>& value) {
  return value ? write_value(*value) : std::vector<std::string>{};
}
std::vector<std::string> write_value(bool value) {
  return {value ? "true" : "false"};
}
std::vector<std::string> write_value(const std::string& value) {
  return value.empty() ? std::vector<std::string>{} : std::vector<std::string>{value};
}
std::vector<std::string> write_value(const Betas& value) {
  return {text_of(value.first) + "," + text_of(value.second)};
}
std::vector<std::string> write_value(const ResumeChoice& value) {
  if (value.kind == ResumeChoice::Kind::step) return {std::to_string(value.step)};
  return {value.kind == ResumeChoice::Kind::never ? "never" : "auto"};
}
std::vector<std::string> write_value(const RankOrder& value) {
  return {text_of(value)};
}
std::vector<std::string> write_value(const StageRecompute& value) {
  std::string joined;
  for (const RecomputeKind kind : value.kinds) joined += (joined.empty() ? "" : ",") + to_string(kind);
  return {joined};
}
std::vector<std::string> write_value(const std::vector<int64_t>& value) {
  if (value.empty()) return {};
  std::string joined;
  for (const int64_t entry : value) joined += (joined.empty() ? "" : ",") + std::to_string(entry);
  return {joined};
}
std::vector<std::string> write_value(const std::vector<DataSource>& value) {
  std::vector<std::string> texts;
  for (const DataSource& source : value) {
    texts.push_back(source.directory + (source.weight > 0 ? ":" + text_of(source.weight) : ""));
  }
  return texts;
}

}  // namespace shiftron
