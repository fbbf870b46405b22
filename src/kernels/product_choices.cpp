// Choices of products as JSON: one object per product, its algorithm as hexadecimal digits.
#include "kernels/product_choices.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/hash.h"
#include "kernels/choices_json.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kDigits = 16;  // of one word

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw_bad_input("unknown product ", name);
}

std::string hex_of(const std::array<uint64_t, 8>& words) {
  std::string text;
  for (const uint64_t word : words) text += to_hex(word);
  return text;
}

std::array<uint64_t, 8> words_of(const std::string& text) {
  std::array<uint64_t, 8> words{};
  const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex || text.size() != kDigits * words.size()) {
    throw_bad_input("an algorithm must have ", kDigits * words.size(), " hexadecimal digits: ", text);
  }
  for (size_t i = 0; i < words.size(); ++i) words[i] = std::stoull(text.substr(kDigits * i, kDigits), nullptr, 16);
  return words;
}

Json json_of(const ProductShape& shape, const ProductChoice& choice) {
  return {{"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"a_transposed", shape.a_transposed},
          {"b_transposed", shape.b_transposed},
          {"adds", shape.adds},
          {"operands", name_of(shape.operands)},
          {"result", name_of(shape.result)},
          {"a_stride", shape.a_stride},
          {"b_stride", shape.b_stride},
          {"c_stride", shape.c_stride},
          {"residual_stride", shape.residual_stride},
          {"alignment", shape.alignment},
          {"algorithm", hex_of(choice.algorithm)},
          {"workspace", choice.workspace},
          {"seconds", choice.seconds}};
}

std::pair<ProductShape, ProductChoice> read_product(const Json& json) {
  const ProductShape shape{.m = json.at("m"),
                           .n = json.at("n"),
                           .k = json.at("k"),
                           .a_transposed = json.at("a_transposed"),
                           .b_transposed = json.at("b_transposed"),
                           .adds = json.at("adds"),
                           .operands = dtype_of(json.at("operands")),
                           .result = dtype_of(json.at("result")),
                           .a_stride = json.at("a_stride"),
                           .b_stride = json.at("b_stride"),
                           .c_stride = json.at("c_stride"),
                           .residual_stride = json.value("residual_stride", int64_t{0}),  // older files have none
                           .alignment = json.at("alignment")};
  const ProductChoice choice{
      .algorithm = words_of(json.at("algorithm")), .workspace = json.at("workspace"), .seconds = json.at("seconds")};
  return {shape, choice};
}

const char* transposed_mark(bool transposed) {
  return transposed ? "ᵀ" : "";
}

}  // namespace

std::string ProductShape::text() const {
  const Shape a = a_transposed ? Shape{k, m} : Shape{m, k};
  const Shape b = b_transposed ? Shape{n, k} : Shape{k, n};
  const bool residual = residual_stride != 0;
  const std::string stride_of_residual = residual ? ", " + std::to_string(residual_stride) : "";
  return detail::concatenate(Shape{m, n}.text(), adds ? " += " : " = ", residual ? "residual + " : "", a.text(),
                             transposed_mark(a_transposed), " ", b.text(), transposed_mark(b_transposed), ", ",
                             name_of(operands), " to ", name_of(result), ", row strides ", c_stride, ", ", a_stride,
                             ", ", b_stride, stride_of_residual, ", addresses divisible by ", alignment);
}

std::string to_json(const ProductChoices& choices) {
  return choices_to_json(choices, "products", json_of);
}

ProductChoices product_choices_from(const std::string& json, const std::string& source) {
  return choices_from_json<ProductShape, ProductChoice>(json, source, "products", read_product);
}

}  // namespace shiftron
