// Walks over an object's keys; values that are not asked for are passed by.
#include "train/step_row.h"

#include <algorithm>
#include <charconv>

namespace shiftron {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

class Walk {
 public:
  explicit Walk(std::string_view line) : rest_(line) {}

  std::optional<StepRow> run() {
    pass_blanks();
    rest_ = rest_.substr(0, rest_.find_last_not_of(kBlanks) + 1);
    if (!rest_.ends_with('}')) return std::nullopt;
    rest_.remove_suffix(1);
    if (!pass('{')) return std::nullopt;
    StepRow row;
    while (!rest_.empty()) {
      const std::optional<std::string_view> key = text();
      if (!key || !pass(':')) return std::nullopt;
      const std::string_view value = this->value();
      if (value.empty()) return std::nullopt;
      take(row, *key, value);
      if (row.step_seconds && row.step && row.loss && row.tokens) return row;
      if (!rest_.empty() && !pass(',')) return std::nullopt;
    }
    return row;
  }

 private:
  void pass_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size())); }
  bool pass(char wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    pass_blanks();
    return true;
  }

  // What stands between the next two quotes, as it is written there.
  std::optional<std::string_view> text() {
    if (!rest_.starts_with('"')) return std::nullopt;
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return std::nullopt;
    const std::string_view inside = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    pass_blanks();
    return inside;
  }

  // The next value as it is written; empty where it does not end.
  std::string_view value() {
    const std::string_view before = rest_;
    int depth = 0;
    while (!rest_.empty() && (depth > 0 || (rest_[0] != ',' && rest_[0] != '}'))) {
      if (rest_[0] == '"') {
        if (!text()) return {};
        continue;
      }
      if (rest_[0] == '{' || rest_[0] == '[') ++depth;
      if (rest_[0] == '}' || rest_[0] == ']') --depth;
      rest_.remove_prefix(1);
    }
    if (depth != 0) return {};
    const std::string_view value = before.substr(0, before.size() - rest_.size());
    return value.substr(0, value.find_last_not_of(kBlanks) + 1);
  }

  static void take(StepRow& row, std::string_view key, std::string_view value) {
    std::optional<double>* const place = key == "step"              ? &row.step
                                         : key == "tokens"          ? &row.tokens
                                         : key == "loss"            ? &row.loss
                                         : key == "step_seconds"    ? &row.step_seconds
                                         : key == "validation_loss" ? &row.validation_loss
                                                                    : nullptr;
    if (place == nullptr) return;
    double number = 0;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, number);
    *place = read.ec == std::errc() && read.ptr == end ? number : std::nan("");
  }

  std::string_view rest_;
};

}  // namespace

std::optional<StepRow> read_step_row(std::string_view line) {
  return Walk(line).run();
}

}  // namespace shiftron
