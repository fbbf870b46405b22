// Handles the parser's events and stops it when all wanted numbers are known.
#include "run/step_row.h"

#include <nlohmann/json.hpp>

namespace shiftron {
namespace {

using Json = nlohmann::json;

class Reader : public nlohmann::json_sax<Json> {
 public:
  StepRow row;
  bool faulty = false;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t number) override { return value(static_cast<double>(number)); }
  bool number_unsigned(number_unsigned_t number) override { return value(static_cast<double>(number)); }
  bool number_float(number_float_t number, const string_t&) override { return value(number); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return begin(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& key) override {
    if (depth_ > 1) return true;
    place_ = key == "step"                  ? &row.step
             : key == "tokens"              ? &row.tokens
             : key == "loss"                ? &row.loss
             : key == "step_seconds"        ? &row.step_seconds
             : key == "accuracy"            ? &row.accuracy
             : key == "validation_loss"     ? &row.validation_loss
             : key == "validation_accuracy" ? &row.validation_accuracy
                                            : nullptr;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    faulty = true;
    return false;
  }

 private:
  bool value(double number = std::nan("")) {
    if (depth_ == 1 && place_ != nullptr) *place_ = number;
    return !(row.step && row.tokens && row.loss && row.step_seconds);
  }
  bool begin() {
    const bool continues = value();
    ++depth_;
    return continues;
  }
  bool end() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::optional<double>* place_ = nullptr;  // of the last top-level key
};

}  // namespace

std::optional<StepRow> read_step_row(std::string_view line) {
  const auto at = [&](size_t place) { return place < line.size() ? line[place] : '\0'; };
  if (at(line.find_first_not_of(" \t")) != '{' || at(line.find_last_not_of(" \t\r")) != '}') return std::nullopt;
  Reader reader;
  Json::sax_parse(line, &reader);
  return reader.faulty ? std::nullopt : std::optional(reader.row);
}

}  // namespace shiftron
