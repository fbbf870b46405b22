// Finds which of a CPU's ways to multiply bfloat16 is fastest here, for each class of product.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"

namespace shiftron {

// The dominant products of a run: activations [rows, in] by weights [out, in], and heads of head_dim.
struct TypicalProduct {
  int64_t rows, in, out, head_dim;
};

// Operations per second.
struct ProductRates {
  double forward = 0, to_input = 0, to_weight = 0, attention = 0;
};

// The classes, listed once: loops over them need no names.
struct ProductClass {
  const char *name, *key;  // for messages, and in a checkpoint
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
// The inverse; nullopt for an unknown name.
std::optional<ProductsBy> products_by(const std::string& name);

// What this processor has instructions for; always includes float32 and library.
std::vector<ProductsBy> products_here();

// Times the candidates on products of that size, or on a part if it is large; takes at most half a second on an
// otherwise idle machine. A later candidate must be a tenth faster than an earlier one to replace it, so that noise
// seldom decides. Returns all float32 if the bodies are the reference implementation, and untimed_products(among) if
// nothing of that size is multiplied.
FastestProducts fastest_products(const CpuOptions& cpu, const std::vector<ProductsBy>& among,
                                 const TypicalProduct& typical);
// Without timing: tiles if there is a matrix unit; otherwise our own vectors for weight gradients and attention and the
// library for the rest; float32 if there is neither.
Bfloat16Products untimed_products(const std::vector<ProductsBy>& among);

}  // namespace shiftron
