// Front ends of the products of a linear layer, and their timing at start.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"
#include "kernels/matrix.h"
#include "kernels/tile_product.h"
#include "kernels/weight_gradient.h"

namespace shiftron {
namespace {

// rows · in · out products and as many sums, in each of the three.
int64_t operations_of(int64_t rows, int64_t in, int64_t out) {
  return 2 * rows * in * out;
}

void check_matrices(const char* kernel, const ConstTensor& first, const ConstTensor& second) {
  check_dims(kernel, "the first operand", first, 2);
  check_dims(kernel, "the second operand", second, 2);
  check_floating(kernel, "the first operand", first);
}

void check_product_scratch(const Stream& stream, const char* kernel, const Tensor& scratch, DType dtype, int64_t rows,
                           int64_t in, int64_t out) {
  if (scratch.defined()) check_scratch(stream, kernel, scratch, dtype, matmul_scratch(stream, dtype, rows, in, out));
}

// Returns the operations of the product.
int64_t check_backward_input(const Stream& stream, const char* kernel, const ConstTensor& d_y, const ConstTensor& w,
                             const Tensor& d_x, DType result, const Tensor& scratch) {
  check_matrices(kernel, d_y, w);
  const int64_t rows = d_y.extent(0);
  const int64_t in = w.extent(1);
  const int64_t out = w.extent(0);
  const DType dtype = d_y.dtype();
  check_argument(stream, kernel, "d_y", d_y, dtype, {rows, out});
  check_argument(stream, kernel, "w", w, dtype, {out, in});
  check_argument(stream, kernel, "d_x", d_x, result, {rows, in});
  check_product_scratch(stream, kernel, scratch, dtype, rows, in, out);
  return operations_of(rows, in, out);
}

}  // namespace

Shape matmul_scratch(const Stream& stream, DType dtype, int64_t rows, int64_t in, int64_t out) {
  constexpr int64_t kFewRows = 256, kBlock = 64;  // the library pads both dims to blocks of at most this
  if (dtype != DType::bfloat16 || rows < kFewRows) return {0};
  const int64_t weight = (in + kBlock - 1) / kBlock * kBlock * ((out + kBlock - 1) / kBlock * kBlock);
  return {std::max(weight, fast::WeightGradientSizes(rows, in).bytes(std::max(1, stream.threads)) / size_of(dtype))};
}

void matmul_forward(Stream& stream, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch) {
  constexpr const char* kName = "matmul_forward";
  check_matrices(kName, x, w);
  const int64_t rows = x.extent(0);
  const int64_t in = x.extent(1);
  const int64_t out = w.extent(0);
  const DType dtype = x.dtype();
  check_floating(kName, "y", y);
  check_argument(stream, kName, "x", x, dtype, {rows, in});
  check_argument(stream, kName, "w", w, dtype, {out, in});
  check_argument(stream, kName, "y", y, y.dtype() == dtype ? dtype : accumulation_type(dtype), {rows, out});
  check_product_scratch(stream, kName, scratch, dtype, rows, in, out);
  const Launch launch(stream, kName, {x, w}, {y}, operations_of(rows, in, out));
  if (!launch.runs()) return;
  use_fast(stream, dtype) ? fast::matmul_forward(stream, x, w, y, scratch)
                          : specification::matmul_forward(stream, x, w, y, scratch);
}

void matmul_backward_input(Stream& stream, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch) {
  constexpr const char* kName = "matmul_backward_input";
  const int64_t operations = check_backward_input(stream, kName, d_y, w, d_x, d_y.dtype(), scratch);
  const Launch launch(stream, kName, {d_y, w}, {d_x}, operations);
  if (!launch.runs()) return;
  use_fast(stream, d_y.dtype()) ? fast::matmul_backward_input(stream, d_y, w, d_x, scratch)
                                : specification::matmul_backward_input(stream, d_y, w, d_x, scratch);
}

void matmul_backward_input_sum(Stream& stream, ConstTensor d_y, ConstTensor w, InOut d_x, Tensor scratch) {
  constexpr const char* kName = "matmul_backward_input_sum";
  const DType accumulation = accumulation_type(d_y.dtype());
  const int64_t operations = check_backward_input(stream, kName, d_y, w, d_x.tensor, accumulation, scratch);
  const Launch launch(stream, kName, {d_y, w, d_x.tensor}, {d_x.tensor}, operations);
  if (!launch.runs()) return;
  use_fast(stream, d_y.dtype()) ? fast::matmul_backward_input_sum(stream, d_y, w, d_x.tensor, scratch)
                                : specification::matmul_backward_input_sum(stream, d_y, w, d_x.tensor, scratch);
}

void matmul_backward_weight(Stream& stream, ConstTensor d_y, ConstTensor x, InOut d_w, Tensor scratch) {
  constexpr const char* kName = "matmul_backward_weight";
  check_matrices(kName, d_y, x);
  const int64_t rows = d_y.extent(0);
  const int64_t in = x.extent(1);
  const int64_t out = d_y.extent(1);
  const DType dtype = d_y.dtype();
  check_argument(stream, kName, "d_y", d_y, dtype, {rows, out});
  check_argument(stream, kName, "x", x, dtype, {rows, in});
  check_argument(stream, kName, "d_w", d_w.tensor, accumulation_type(dtype), {out, in});
  check_product_scratch(stream, kName, scratch, dtype, rows, in, out);
  const Launch launch(stream, kName, {d_y, x, d_w.tensor}, {d_w.tensor}, operations_of(rows, in, out));
  if (!launch.runs()) return;
  use_fast(stream, dtype) ? fast::matmul_backward_weight(stream, d_y, x, d_w.tensor, scratch)
                          : specification::matmul_backward_weight(stream, d_y, x, d_w.tensor, scratch);
}

// ---- timing ---------------------------------------------------------------------------------------------------------
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Three square matrices of ones in own memory, outside of every ledger.
class TimedProducts {
 public:
  TimedProducts(DType dtype, int64_t size)
      : memory_(static_cast<size_t>(3 * size * size * size_of(DType::float32)) / sizeof(float), 0.0f),
        a_(memory_.data(), dtype, {size, size}, DeviceKind::cpu),
        b_(memory_.data() + size * size, dtype, {size, size}, DeviceKind::cpu),
        c_(memory_.data() + 2 * size * size, dtype, {size, size}, DeviceKind::cpu),
        sum_(memory_.data() + 2 * size * size, DType::float32, {size, size}, DeviceKind::cpu) {}
  // The library's own buffers, megabytes that no step uses, go back to the system.
  ~TimedProducts() { malloc_trim(0); }
  TimedProducts(const TimedProducts&) = delete;
  TimedProducts& operator=(const TimedProducts&) = delete;

  void forward(Stream& stream) {
    use_fast(stream, a_.dtype()) ? fast::matmul_forward(stream, a_, b_, c_, {})
                                 : specification::matmul_forward(stream, a_, b_, c_, {});
  }
  // Shortest of three rounds after one that warms up; a round is one product of each kind.
  double seconds_of_a_round(Stream& stream) {
    double shortest = 0;
    for (int round = 0; round < 4; ++round) {
      const auto start = Clock::now();
      fast::matmul_forward(stream, a_, b_, c_, {});
      fast::matmul_backward_input(stream, a_, b_, c_, {});
      fast::matmul_backward_weight(stream, a_, b_, sum_, {});
      const double seconds = seconds_since(start);
      if (round == 1 || (round > 1 && seconds < shortest)) shortest = seconds;
    }
    return shortest;
  }

 private:
  std::vector<float> memory_;
  Tensor a_, b_, c_, sum_;
};

}  // namespace

bool bfloat16_matmul_pays(Stream& stream) {
  if (stream.device != DeviceKind::cpu || stream.bodies != Bodies::fast) return false;
  constexpr int64_t kSize = 256;
  Stream timed = stream;
  timed.bfloat16_matmul = true;
  try {
    const double seconds_bfloat16 = TimedProducts(DType::bfloat16, kSize).seconds_of_a_round(timed);
    const double seconds_float32 = TimedProducts(DType::float32, kSize).seconds_of_a_round(timed);
    return seconds_bfloat16 < seconds_float32;
  } catch (const std::exception&) {
    return false;  // the library has no bfloat16 product for this processor
  }
}

bool bfloat16_tiles_pay(Stream& stream) {
  if (stream.device != DeviceKind::cpu || stream.bodies != Bodies::fast || !fast::tile_products_available())
    return false;
  constexpr int64_t kRows = 128, kColumns = 256, kDepth = 64;  // one tile of attention
  const std::vector<bfloat16> a(kRows * kDepth);
  const std::vector<uint32_t> b(kDepth / 2 * kColumns);
  const std::vector<float> wide_a(kRows * kDepth, 1.0f), wide_b(kDepth * kColumns, 1.0f);
  std::vector<float> c(kRows * kColumns);
  const fast::LibraryThreads one(1);
  double shortest[2] = {};
  for (int round = 0; round < 8; ++round) {
    for (const int kind : {0, 1}) {
      const auto start = Clock::now();
      if (kind == 0) {
        fast::tile_product(kRows, kColumns, kDepth / 2, fast::rows_of(a.data(), kDepth), b.data(), kColumns, false,
                           c.data(), kColumns);
      } else {
        fast::product_float32(kRows, kColumns, kDepth, wide_a.data(), kDepth, false, wide_b.data(), kColumns, false,
                              false, c.data(), kColumns);
      }
      const double seconds = seconds_since(start);
      if (round == 1 || (round > 1 && seconds < shortest[kind])) shortest[kind] = seconds;
    }
  }
  return shortest[0] < shortest[1];
}

double measure_matmul_peak(Stream& stream, DType dtype) {
  if (stream.device != DeviceKind::cpu) return 0;
  constexpr int64_t kSize = 512;
  constexpr double kSeconds = 0.05;
  TimedProducts products(dtype, kSize);
  try {
    products.forward(stream);
    const auto start = Clock::now();
    int64_t count = 0;
    double seconds = 0;
    while (seconds < kSeconds) {
      products.forward(stream);
      count += 1;
      seconds = seconds_since(start);
    }
    return static_cast<double>(count * 2 * kSize * kSize * kSize) / seconds;
  } catch (const std::exception&) {
    return 0;  // no such product on this processor
  }
}

double measure_copy_bandwidth(Stream& stream) {
  if (stream.device != DeviceKind::cpu) return 0;
  constexpr int64_t kRows = 8192, kColumns = 4096;
  const auto memory = std::make_unique<float[]>(2 * kRows * kColumns);
  const Tensor from(memory.get(), DType::float32, {kRows, kColumns}, DeviceKind::cpu);
  const Tensor to(memory.get() + kRows * kColumns, DType::float32, {kRows, kColumns}, DeviceKind::cpu);
  double shortest = 0;
  for (int round = 0; round < 4; ++round) {
    const auto start = Clock::now();
    fast::copy(stream, from, to);
    const double seconds = seconds_since(start);
    if (round == 1 || (round > 1 && seconds < shortest)) shortest = seconds;
  }
  return static_cast<double>(from.bytes() + to.bytes()) / shortest;
}

}  // namespace shiftron
