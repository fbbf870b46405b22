// The library algorithm chosen for each product on one device; can be stored and loaded.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "kernels/choices.h"

namespace shiftron {

// c = op(a) op(b), c += op(a) op(b), or c = residual + op(a) op(b), row-major: everything that an algorithm may depend
// on.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;  // c [m, n], sums of k terms
  bool a_transposed = false;    // a is stored as [k, m], otherwise as [m, k]
  bool b_transposed = false;    // b is stored as [n, k], otherwise as [k, n]
  bool adds = false;            // to the values in c
  DType operands = DType::float32;
  DType result = DType::float32;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  // elements from one stored row to the next
  int64_t residual_stride = 0;                       // of a [m, n] residual that does not overlap c; 0 if none is added
  int64_t alignment = 0;                             // bytes, a power of two that divides all addresses
  auto operator<=>(const ProductShape&) const = default;
  std::string text() const;  // for messages
};

struct ProductChoice {
  std::array<uint64_t, 8> algorithm{};  // the library's own representation
  int64_t workspace = 0;                // bytes that it needs
  double seconds = 0;                   // of one product; 0 if it was not timed
  bool operator==(const ProductChoice&) const = default;
};

using ProductChoices = Choices<ProductShape, ProductChoice>;

std::string to_json(const ProductChoices& choices);
// The inverse; Error(bad_input) that begins with `source` if the text is not valid.
ProductChoices product_choices_from(const std::string& json, const std::string& source);

}  // namespace shiftron
