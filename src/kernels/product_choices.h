// Which algorithm of the library each product got on one device, to be kept and read back.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "kernels/choices.h"

namespace shiftron {

// c = op(a) op(b), c += op(a) op(b), or c = residual + op(a) op(b), row-major: all that an algorithm may depend on.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;  // c [m, n], sums of k terms
  bool a_transposed = false;    // a lies as [k, m], else as [m, k]
  bool b_transposed = false;    // b lies as [n, k], else as [k, n]
  bool adds = false;            // to what stands in c
  DType operands = DType::float32;
  DType result = DType::float32;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  // elements from one row to the next, as they lie
  int64_t residual_stride = 0;                       // of [m, n] in memory apart from c; 0 where none is added
  int64_t alignment = 0;                             // bytes, a power of two: a divisor of all addresses
  auto operator<=>(const ProductShape&) const = default;
  std::string text() const;  // for messages
};

struct ProductChoice {
  std::array<uint64_t, 8> algorithm{};  // as the library made it
  int64_t workspace = 0;                // bytes that it needs
  double seconds = 0;                   // of one product; 0 where it was not timed
  bool operator==(const ProductChoice&) const = default;
};

using ProductChoices = Choices<ProductShape, ProductChoice>;

std::string to_json(const ProductChoices& choices);
// The inverse; Error(bad_input) that begins with `source` where the text is something else.
ProductChoices product_choices_from(const std::string& json, const std::string& source);

}  // namespace shiftron
