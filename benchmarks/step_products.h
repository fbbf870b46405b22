// The matrix products of a training step, and the ways in which the library computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/check.h"
#include "core/tensor.h"

namespace shiftron {

// c [m, n] = a b, or += where d_w is summed up, or a residual is added.
struct Product {
  std::string name;
  const char* kernel;  // that computes it in a step
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  enum class Adds { nothing, gradient, residual } adds;  // a gradient is float32
  int64_t calls;                                         // in a step
  double operations() const {
    const double terms = 2.0 * static_cast<double>(k) + (adds == Adds::residual ? 1 : 0);
    return static_cast<double>(m) * static_cast<double>(n) * terms;
  }
};

std::vector<Product> products_of(const RunConfig& config, DType dtype);

// Memory that is handed out in a circle, so that what comes next has left the caches. Filled with small numbers.
class Pool {
 public:
  Pool();
  template <typename T>
  T* next(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    CHECK(bytes <= size(), "a matrix of ", bytes, " bytes does not fit the pool");
    if (at_ + bytes > size()) at_ = 0;
    at_ += bytes;
    return static_cast<T*>(data_.tensor(at_ - bytes, DType::uint8, {bytes}).raw());
  }

 private:
  int64_t size() const { return data_.bytes(); }
  Ledger unused_;
  Buffer data_;
  int64_t at_ = 0;
};

struct Pools {
  Pool inputs, outputs;
};

// A way to compute a product; a call runs it once on fresh buffers and returns its seconds.
struct Way {
  std::string name;
  std::function<double()> call;
};

// None where the processor has no such product. The pools must outlive the ways.
std::vector<Way> ways_of(const Product& product, DType dtype, Pools& pools);

}  // namespace shiftron
