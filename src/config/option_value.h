// Text of one configuration value: reading and writing for every type that a section holds.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/sections.h"

namespace shiftron {

// The range of a number; an `open` end does not belong to it.
struct Limits {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  // "" or what is wrong with `value`: "must be >= 1".
  std::string fault(double value) const;
};
constexpr double kLargestCount = 2147483647;  // of a size: products of two stay below 2^63
constexpr Limits between(double low, double high) {
  return {.low = low, .high = high};
}
constexpr Limits above(double low) {
  return {.low = low, .low_open = true};
}
constexpr Limits at_least(double low) {
  return {.low = low};
}

// Each read_value returns "" or what is wrong with the text ("is not a whole number"); `value` then keeps its old
// value.
std::string read_value(const std::string& text, int64_t& value);
std::string read_value(const std::string& text, int& value);
std::string read_value(const std::string& text, double& value);
std::string read_value(const std::string& text, std::optional<int64_t>& value);
std::string read_value(const std::string& text, bool& value);
std::string read_value(const std::string& text, std::string& value);
std::string read_value(const std::string& text, Betas& value);                    // 0.9,0.95
std::string read_value(const std::string& text, ResumeChoice& value);             // auto|never|STEP
std::string read_value(const std::string& text, RankOrder& value);                // tp,cp,dp,pp
std::string read_value(const std::string& text, StageRecompute& value);           // full, or full,none,none
std::string read_value(const std::string& text, std::vector<int64_t>& value);     // 7,7,7,7; empty text = empty list
std::string read_value(const std::string& text, std::vector<DataSource>& value);  // path or path:weight; appends

// Texts that read_value understands, doubles with all their digits; no text for an empty list.
std::vector<std::string> write_value(int64_t value);
std::vector<std::string> write_value(int value);
std::vector<std::string> write_value(double value);
std::vector<std::string> write_value(const std::optional<int64_t>& value);  // no text if unset
std::vector<std::string> write_value(bool value);
std::vector<std::string> write_value(const std::string& value);
std::vector<std::string> write_value(const Betas& value);
std::vector<std::string> write_value(const ResumeChoice& value);
std::vector<std::string> write_value(const RankOrder& value);
std::vector<std::string> write_value(const StageRecompute& value);
std::vector<std::string> write_value(const std::vector<int64_t>& value);
std::vector<std::string> write_value(const std::vector<DataSource>& value);

// The placeholder for the value in help.
constexpr const char* placeholder(int64_t) {
  return "N";
}
constexpr const char* placeholder(int) {
  return "N";
}
constexpr const char* placeholder(double) {
  return "X";
}
constexpr const char* placeholder(const std::optional<int64_t>&) {
  return "N";
}
constexpr const char* placeholder(bool) {
  return "true|false";
}
inline const char* placeholder(const std::string&) {
  return "TEXT";
}
constexpr const char* placeholder(const Betas&) {
  return "X,X";
}
constexpr const char* placeholder(const ResumeChoice&) {
  return "auto|never|STEP";
}
constexpr const char* placeholder(const RankOrder&) {
  return "AXIS,AXIS,AXIS,AXIS";
}
inline const char* placeholder(const std::vector<int64_t>&) {
  return "N,N,...";
}
inline const char* placeholder(const std::vector<DataSource>&) {
  return "DIR[:WEIGHT]";
}

template <NamedEnum Enum>
std::string names_joined(const char* separator) {
  std::string joined;
  for (const char* name : names_of(Enum{})) joined += (joined.empty() ? "" : separator) + std::string(name);
  return joined;
}

// The key used to be a switch: old checkpoints say false (off) or true (repeat).
std::string read_value(const std::string& text, Deterministic& value);

template <NamedEnum Enum>
std::string read_value(const std::string& text, Enum& value) {
  const auto found = from_string<Enum>(text);
  if (!found) return "is not one of " + names_joined<Enum>(", ");
  value = *found;
  return "";
}
template <NamedEnum Enum>
std::vector<std::string> write_value(Enum value) {
  return {to_string(value)};
}
template <NamedEnum Enum>
std::string placeholder(Enum) {
  return names_joined<Enum>("|");
}
inline std::string placeholder(const StageRecompute&) {
  return placeholder(RecomputeKind{}) + "[,...]";
}

}  // namespace shiftron
