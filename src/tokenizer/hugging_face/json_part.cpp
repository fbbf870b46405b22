// See the header.
#include "tokenizer/hugging_face/json_part.h"

#include <cmath>

namespace shiftron {

const nlohmann::json& JsonPart::null() {
  static const nlohmann::json instance;
  return instance;
}

JsonPart JsonPart::at(const nlohmann::json& value, const std::string& step, bool is_key) const {
  JsonPart part(value, place_ + (is_top_ ? ": " : is_key ? "." : "") + step);
  part.is_top_ = false;
  return part;
}

JsonPart JsonPart::operator[](const char* key) const {
  if (!value_->is_object()) refuse("is not an object");
  const auto found = value_->find(key);
  return at(found == value_->end() ? null() : *found, key, true);
}

std::vector<JsonPart> JsonPart::list() const {
  std::vector<JsonPart> parts;
  if (is_null()) return parts;
  if (!value_->is_array()) refuse("is not a list");
  for (size_t i = 0; i < value_->size(); ++i) parts.push_back(at((*value_)[i], "[" + std::to_string(i) + "]", false));
  return parts;
}

std::string JsonPart::text() const {
  if (!value_->is_string()) refuse("is not a string");
  return value_->get<std::string>();
}

bool JsonPart::boolean() const {
  if (!value_->is_boolean()) refuse("is neither true nor false");
  return value_->get<bool>();
}

int64_t JsonPart::integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) refuse("is not an integer");
  const bool is_huge = value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX};
  if (is_huge || value_->get<int64_t>() < least || value_->get<int64_t>() > most) {
    refuse("is ", value_->dump(), "; it must be between ", least, " and ", most);
  }
  return value_->get<int64_t>();
}

double JsonPart::real() const {
  if (!value_->is_number()) refuse("is not a number");
  const double number = value_->get<double>();
  if (!std::isfinite(number)) refuse("is not finite");
  return number;
}

}  // namespace shiftron
