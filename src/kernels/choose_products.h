// Which of a CPU's ways of multiplying bfloat16 is fastest here, by class of product.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"

namespace shiftron {

// What a run multiplies most: activations [rows, in] by weights [out, in], and heads of head_dim.
struct TypicalProduct {
  int64_t rows, in, out, head_dim;
};

// Operations per second.
struct ProductRates {
  double forward = 0, to_input = 0, to_weight = 0, attention = 0;
};

// The classes, stated once: what loops over them says no name itself.
struct ProductClass {
  const char *name, *key;  // for people, and in a checkpoint
  ProductsBy Bfloat16Products::*by;
  double ProductRates::*rate;
};
inline constexpr std::array<ProductClass, 4> kProductClasses = {
    {{"forward", "forward", &Bfloat16Products::forward, &ProductRates::forward},
     {"to input", "to_input", &Bfloat16Products::to_input, &ProductRates::to_input},
     {"to weight", "to_weight", &Bfloat16Products::to_weight, &ProductRates::to_weight},
     {"attention", "attention", &Bfloat16Products::attention, &ProductRates::attention}}};

struct FastestProducts {
  Bfloat16Products by;
  ProductRates rates;
  std::string text() const;  // "forward library 812 GFLOP/s, to input …"
};

const char* name_of(ProductsBy by);
std::string text_of(const Bfloat16Products& products);  // "forward by library, to input by …"
// The inverse; nothing of another name.
std::optional<ProductsBy> products_by(const std::string& name);

// What this processor has instructions for; float32 and library always.
std::vector<ProductsBy> products_here();

// Times them on products of that size or, where it is large, a part of it; half a second at most where nobody disturbs.
// A later one is taken over an earlier one only where it is a tenth faster, so that noise seldom decides. All float32
// where the bodies are the specification's; untimed_products(among) where nothing of that size is multiplied.
FastestProducts fastest_products(const CpuOptions& cpu, const std::vector<ProductsBy>& among,
                                 const TypicalProduct& typical);
// Untimed: tiles where there is a matrix unit; else own vectors for weight gradients and attention,
// and the library for the rest; float32 where there are neither.
Bfloat16Products untimed_products(const std::vector<ProductsBy>& among);

}  // namespace shiftron
