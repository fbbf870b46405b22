// Candidates are timed alternately, and the shortest time of each counts, because other jobs may disturb.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>

#include "core/memory.h"
#include "kernels/attention_tiles.h"
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

constexpr int64_t kMostRows = 2048;  // of a timed product; with fewer rows, packing might not pay that pays with more
constexpr int64_t kMostColumns = 1024;
constexpr int64_t kTurnBytes = int64_t{64} << 20;  // of activations to alternate between, at most; a step has gigabytes
constexpr int64_t kMostTurns = 32;
constexpr int kRounds = 5;  // the first one warms up
constexpr double kFaster = 1.1;
constexpr double kHopeless = 3;  // times the shortest: no longer timed
constexpr std::array<const char*, 5> kNames = {"float32", "library", "vectors", "tiles", "tile loops"};

struct Timed {
  ProductsBy by = float32;
  double seconds = std::numeric_limits<double>::infinity();
};

// Each call computes the same in the given way. The earlier candidate wins unless a later one is kFaster times as fast.
Timed fastest(const std::vector<ProductsBy>& among, const std::function<void(ProductsBy)>& call) {
  std::vector<Timed> timed;
  for (const ProductsBy by : among) timed.push_back({.by = by});
  for (int round = 0; round < kRounds; ++round) {
    const double shortest = std::ranges::min(timed, {}, &Timed::seconds).seconds;
    for (Timed& one : timed) {
      if (round > 1 && one.seconds > kHopeless * shortest) continue;
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

// Joins `text` of all classes.
std::string of_classes(const std::function<std::string(const ProductClass&)>& text) {
  std::string all;
  for (const ProductClass& of : kProductClasses) all += (all.empty() ? "" : ", ") + text(of);
  return all;
}

// Tensors of ones with a run's layout, in their own memory outside of every ledger.
class Ones {
 public:
  explicit Ones(DType dtype) : dtype_(dtype) {}
  Tensor make(Shape shape) {
    const int64_t count = shape.count();
    buffers_.emplace_back(DeviceKind::cpu, count * size_of(dtype_), ledger_, "timing");
    const Tensor all = buffers_.back().tensor(0, dtype_, shape);
    if (dtype_ == DType::bfloat16)
      std::fill_n(all.data<bfloat16>(), count, to_bfloat16(1.0f));
    else
      std::fill_n(all.data<float>(), count, 1.0f);
    return all;
  }

 private:
  DType dtype_;
  Ledger ledger_;
  std::vector<Buffer> buffers_;
};

// x, w, y of one linear layer and their gradients. Each call uses other activations, as in a step, where they are not
// in the second-level cache.
class TimedLayer {
 public:
  TimedLayer(const CpuOptions& cpu, const TypicalProduct& typical)
      : cpu_(cpu),
        rows_(std::min(typical.rows, kMostRows)),
        in_(std::min(typical.in, kMostColumns)),
        out_(std::min(typical.out, kMostColumns)),
        w_(halves_.make({out_, in_})),
        scratch_(halves_.make(matmul_scratch({.cpu = cpu}, DType::bfloat16, rows_, in_, out_))),
        d_w_(sums_.make({out_, in_})) {
    for (int64_t i = 0; i < turns(in_); ++i) x_.push_back(halves_.make({rows_, in_}));
    for (int64_t i = 0; i < turns(out_); ++i) y_.push_back(halves_.make({rows_, out_}));
  }

  double operations() const { return 2.0 * static_cast<double>(rows_ * in_ * out_); }
  void forward(ProductsBy by) {
    cpu_.bfloat16.forward = by;
    fast::matmul_forward(cpu_, x(), w_, y(), scratch_);
  }
  void to_input(ProductsBy by) {
    cpu_.bfloat16.to_input = by;
    fast::matmul_backward_input(cpu_, y(), w_, x(), scratch_);
  }
  void to_weight(ProductsBy by) {
    cpu_.bfloat16.to_weight = by;
    fast::matmul_backward_weight(cpu_, y(), x(), d_w_, scratch_);
  }

 private:
  int64_t turns(int64_t columns) const {
    return std::clamp<int64_t>(kTurnBytes / (rows_ * columns * size_of(DType::bfloat16)), 2, kMostTurns);
  }
  Tensor x() { return x_[turn_++ % x_.size()]; }
  Tensor y() { return y_[turn_++ % y_.size()]; }

  CpuOptions cpu_;
  int64_t rows_, in_, out_;
  Ones halves_{DType::bfloat16}, sums_{DType::float32};
  Tensor w_, scratch_, d_w_;
  std::vector<Tensor> x_, y_;
  size_t turn_ = 0;
};

// One tile of attention on one thread.
class TimedTile {
 public:
  explicit TimedTile(int64_t head_dim)
      : depth_(std::clamp<int64_t>(head_dim / 2 * 2, 2, 256)),
        a_(halves_.make({kRows, depth_})),
        b_(halves_.make({depth_, kStride})),
        wide_a_(floats_.make({kRows, depth_})),
        wide_b_(floats_.make({depth_, kStride})),
        c_(floats_.make({kRows, kStride})) {}
  double operations() const { return 2.0 * static_cast<double>(kRows * kColumns * depth_ * kCalls); }
  void product(ProductsBy by) {
    for (int64_t call = 0; call < kCalls; ++call) {
      if (by == float32) {
        fast::tile_product_float32(kRows, kColumns, depth_, {wide_a_.data<float>(), depth_, 1}, wide_b_.data<float>(),
                                   kStride, false, c_.data<float>(), kStride);
      } else {
        fast::tile_body(by)->product(kRows, kColumns, depth_ / 2, fast::rows_of(a_.data<bfloat16>(), depth_),
                                     static_cast<const uint32_t*>(b_.raw()), kStride, false, c_.data<float>(), kStride);
      }
    }
  }

 private:
  static constexpr int64_t kRows = 128, kColumns = fast::AttentionTiles::kKeys, kStride = fast::AttentionTiles::kStride;
  static constexpr int64_t kCalls = 16;
  int64_t depth_;
  Ones halves_{DType::bfloat16}, floats_{DType::float32};
  Tensor a_, b_, wide_a_, wide_b_, c_;
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
  if (typical.rows == 0 || typical.in == 0 || typical.out == 0) return {.by = untimed_products(among), .rates = {}};
  FastestProducts result;
  TimedLayer layer(cpu, typical);
  const auto time = [&](const ProductClass& of, const std::vector<ProductsBy>& candidates, double operations,
                        const auto& call) {
    const Timed best = fastest(candidates, call);
    result.by.*of.by = best.by;
    result.rates.*of.rate = operations / best.seconds;
  };
  const auto& [forward, to_input, to_weight, attention] = kProductClasses;
  // For large matrices the library's products by vectors are at least as fast as our own tiles.
  const std::vector<ProductsBy> large = without(among, vectors);
  time(forward, large, layer.operations(), [&](ProductsBy by) { layer.forward(by); });
  time(to_input, large, layer.operations(), [&](ProductsBy by) { layer.to_input(by); });
  // For weight gradients the library transposes an operand, which costs more with more rows than are timed here. So it
  // comes after our own vectors.
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
  // The library's large products are at least as fast as those by our own vectors (see fastest_products), but not as
  // those by the matrix unit.
  const ProductsBy large = own == tiles ? tiles : library;
  return {.forward = large, .to_input = large, .to_weight = own, .attention = own};
}

}  // namespace shiftron
