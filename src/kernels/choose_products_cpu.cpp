// Candidates take turns, and of each the shortest time counts, since neighbours disturb.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>

#include "kernels/bodies.h"
#include "kernels/choose_products.h"
#include "kernels/element.h"
#include "kernels/matrix.h"
#include "kernels/scratch.h"
#include "kernels/tile_product.h"

namespace shiftron {
namespace {

using enum ProductsBy;
using Clock = std::chrono::steady_clock;

constexpr int64_t kLargest = 512;   // rows and columns of a timed product
constexpr int kRounds = 5;          // the first one warms up
constexpr double kFaster = 1.1;
constexpr std::array<const char*, 5> kNames = {"float32", "library", "vectors", "tiles", "tile loops"};

struct Timed {
  ProductsBy by = float32;
  double seconds = std::numeric_limits<double>::infinity();
};

// Each call computes the same by what it is given. Of equals the first.
Timed fastest(const std::vector<ProductsBy>& among, const std::function<void(ProductsBy)>& call) {
  std::vector<Timed> timed;
  for (const ProductsBy by : among) timed.push_back({.by = by});
  for (int round = 0; round < kRounds; ++round) {
    for (Timed& one : timed) {
      const auto start = Clock::now();
      call(one.by);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (round > 0) one.seconds = std::min(one.seconds, seconds);
    }
  }
  Timed best = timed.front();
  for (const Timed& one : timed) {
    if (one.seconds * kFaster < best.seconds) best = one;
  }
  return best;
}

std::vector<ProductsBy> without(std::vector<ProductsBy> all, ProductsBy by) {
  std::erase(all, by);
  return all;
}

// What `text` says of each class.
std::string of_classes(const std::function<std::string(const ProductClass&)>& text) {
  std::string all;
  for (const ProductClass& of : kProductClasses) all += (all.empty() ? "" : ", ") + text(of);
  return all;
}

// x, w, y of one linear layer and their gradients, of ones, in own memory outside of every ledger.
class TimedLayer {
 public:
  TimedLayer(const CpuOptions& cpu, const TypicalProduct& typical)
      : cpu_(cpu),
        rows_(std::min(typical.rows, kLargest)),
        in_(std::min(typical.in, kLargest)),
        out_(std::min(typical.out, kLargest)),
        scratch_elements_(matmul_scratch({.cpu = cpu}, DType::bfloat16, rows_, in_, out_)[0]),
        x_(of_ones(rows_ * in_)),
        w_(of_ones(out_ * in_)),
        y_(of_ones(rows_ * out_)),
        scratch_(static_cast<size_t>(scratch_elements_)),
        d_w_(static_cast<size_t>(out_ * in_)) {}
  // Megabytes that no step uses go back to the system.
  ~TimedLayer() { malloc_trim(0); }
  TimedLayer(const TimedLayer&) = delete;
  TimedLayer& operator=(const TimedLayer&) = delete;

  double operations() const { return 2.0 * static_cast<double>(rows_ * in_ * out_); }
  void forward(ProductsBy by) {
    cpu_.bfloat16.forward = by;
    fast::matmul_forward(cpu_, view(x_, rows_, in_), view(w_, out_, in_), view(y_, rows_, out_), scratch());
  }
  void to_input(ProductsBy by) {
    cpu_.bfloat16.to_input = by;
    fast::matmul_backward_input(cpu_, view(y_, rows_, out_), view(w_, out_, in_), view(x_, rows_, in_), scratch());
  }
  void to_weight(ProductsBy by) {
    cpu_.bfloat16.to_weight = by;
    const Tensor d_w(d_w_.data(), DType::float32, {out_, in_}, DeviceKind::cpu);
    fast::matmul_backward_weight(cpu_, view(y_, rows_, out_), view(x_, rows_, in_), d_w, scratch());
  }

 private:
  static std::vector<bfloat16> of_ones(int64_t count) {
    return std::vector<bfloat16>(static_cast<size_t>(count), to_bfloat16(1.0f));
  }
  static Tensor view(std::vector<bfloat16>& values, int64_t rows, int64_t columns) {
    return {values.data(), DType::bfloat16, {rows, columns}, DeviceKind::cpu};
  }
  Tensor scratch() { return {scratch_.data(), DType::bfloat16, {scratch_elements_}, DeviceKind::cpu}; }

  CpuOptions cpu_;
  int64_t rows_, in_, out_, scratch_elements_;
  std::vector<bfloat16> x_, w_, y_, scratch_;
  std::vector<float> d_w_;
};

// One tile of attention on one thread.
class TimedTile {
 public:
  explicit TimedTile(int64_t head_dim)
      : depth_(std::clamp<int64_t>(head_dim / 2 * 2, 2, 256)),
        a_(static_cast<size_t>(kRows * depth_)),
        b_(static_cast<size_t>(depth_ / 2 * kColumns)),
        wide_a_(a_.size(), 1.0f),
        wide_b_(2 * b_.size(), 1.0f),
        c_(kRows * kColumns) {}
  double operations() const { return 2.0 * static_cast<double>(kRows * kColumns * depth_ * kCalls); }
  void product(ProductsBy by) {
    for (int64_t call = 0; call < kCalls; ++call) {
      if (by == float32) {
        fast::product_float32(kRows, kColumns, depth_, wide_a_.data(), depth_, false, wide_b_.data(), kColumns, false,
                              false, c_.data(), kColumns);
      } else {
        fast::tile_body(by)->product(kRows, kColumns, depth_ / 2, fast::rows_of(a_.data(), depth_), b_.data(), kColumns,
                                     false, c_.data(), kColumns);
      }
    }
  }

 private:
  static constexpr int64_t kRows = 128, kColumns = 256, kCalls = 16;
  int64_t depth_;
  std::vector<bfloat16> a_;
  std::vector<uint32_t> b_;
  std::vector<float> wide_a_, wide_b_, c_;
};

}  // namespace

const char* name_of(ProductsBy by) {
  return kNames.at(static_cast<size_t>(by));
}

std::optional<ProductsBy> products_by(const std::string& name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ProductsBy>(found - kNames.begin());
}

std::string text_of(const Bfloat16Products& products) {
  return of_classes([&](const ProductClass& of) { return fmt::format("{} by {}", of.name, name_of(products.*of.by)); });
}

std::string FastestProducts::text() const {
  return of_classes([&](const ProductClass& of) {
    return fmt::format("{} by {} at {:.0f} GFLOP/s", of.name, name_of(by.*of.by), rates.*of.rate / 1e9);
  });
}

std::vector<ProductsBy> products_here() {
  std::vector<ProductsBy> here = {float32, library};
  for (const ProductsBy by : {vectors, tiles}) {
    if (fast::tile_body(by) != nullptr) here.push_back(by);
  }
  return here;
}

FastestProducts fastest_products(const CpuOptions& cpu, const std::vector<ProductsBy>& among,
                                 const TypicalProduct& typical) {
  if (cpu.bodies != Bodies::fast) return {.by = {float32, float32, float32, float32}, .rates = {}};
  FastestProducts result;
  TimedLayer layer(cpu, typical);
  const auto time = [&](const ProductClass& of, const std::vector<ProductsBy>& candidates, double operations,
                        const auto& call) {
    const Timed best = fastest(candidates, call);
    result.by.*of.by = best.by;
    result.rates.*of.rate = operations / best.seconds;
  };
  const auto& [forward, to_input, to_weight, attention] = kProductClasses;
  // The library multiplies large matrices by vectors at least as fast as our own tiles do.
  const std::vector<ProductsBy> large = without(among, vectors);
  time(forward, large, layer.operations(), [&](ProductsBy by) { layer.forward(by); });
  time(to_input, large, layer.operations(), [&](ProductsBy by) { layer.to_input(by); });
  // Of weight gradients the library transposes an operand, which more rows than are timed make dearer: behind own vectors.
  std::vector<ProductsBy> summed = without(among, library);
  if (summed.size() < among.size()) summed.insert(std::ranges::find(summed, tiles), library);
  time(to_weight, summed, layer.operations(), [&](ProductsBy by) { layer.to_weight(by); });
  TimedTile tile(typical.head_dim);
  const fast::LibraryThreads one(1);
  time(attention, without(among, library), tile.operations(), [&](ProductsBy by) { tile.product(by); });
  return result;
}

Bfloat16Products untimed_products(const std::vector<ProductsBy>& among) {
  const ProductsBy own = among.back();
  if (own == library) return {float32, float32, float32, float32};  // which the library would only emulate
  return {.forward = library, .to_input = library, .to_weight = own, .attention = own};
}

}  // namespace shiftron
