// Measures the rates of a device through the front ends that training calls.
#include "kernels/timing.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/event.h"
#include "core/memory.h"
#include "core/philox.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

constexpr int kRuns = 5;  // timed, after one that is not

// Shortest time of one product of square matrices; nullopt if there is no memory for them.
std::optional<double> seconds_of_square(Stream& stream, DType dtype, int64_t size) {
  const Shape shape = {size, size};
  const int64_t bytes = shape.count() * size_of(dtype);
  std::optional<Buffer> memory;
  try {
    memory.emplace(stream.device, 3 * bytes, *stream.ledger, "timing");
  } catch (const Error&) {
    return std::nullopt;
  }
  const Tensor x = memory->tensor(0, dtype, shape), w = memory->tensor(bytes, dtype, shape);
  const Tensor y = memory->tensor(2 * bytes, dtype, shape);
  fill_random(stream, x);
  fill_random(stream, w);
  return shortest_seconds(stream, [&] { matmul_forward(stream, x, w, y); });
}

}  // namespace

void fill_random(Stream& stream, const Tensor& tensor) {
  const int64_t count = std::min<int64_t>(tensor.count(), int64_t{1} << 16);
  Buffer host = staging_buffer(stream, count * size_of(DType::float32));
  Buffer device(stream.device, count * size_of(DType::float32), *stream.ledger, "timing");
  const Tensor values = host.tensor(0, DType::float32, {count}), there = device.tensor(0, DType::float32, {count});
  const Philox random(1, "timing");
  for (int64_t i = 0; i < count; ++i) {
    values.host_data<float>()[i] = static_cast<float>(random.uniform(static_cast<uint64_t>(i))) - 0.5f;
  }
  upload(stream, values, there);
  const Tensor flat = tensor.view({tensor.count()});
  for (int64_t begin = 0; begin < flat.count(); begin += count) {
    const int64_t part = std::min(count, flat.count() - begin);
    copy(stream, there.rows(0, part), flat.rows(begin, part));
  }
  finish(stream);
}

double shortest_seconds(Stream& stream, const std::function<void()>& call) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int run = 0; run <= kRuns; ++run) {
    Event begin, end;
    begin.record(stream, true);
    call();
    end.record(stream, true);
    end.wait_on_host();
    if (run > 0) shortest = std::min(shortest, end.seconds_since(begin));
  }
  return shortest;
}

double measure_matmul_peak(Stream& stream, DType dtype) {
  if (stream.device == DeviceKind::cpu) return measure_matmul_peak(stream.cpu, dtype);
  constexpr int64_t kSmallest = 256, kLargest = 8192;
  constexpr double kEnough = 1e-3;  // seconds: starting and ending a product no longer matters
  Ledger own;
  Stream timed = stream;
  timed.ledger = &own;
  double rate = 0;
  for (int64_t size = kSmallest; size <= kLargest; size *= 2) {
    const std::optional<double> seconds = seconds_of_square(timed, dtype, size);
    if (!seconds) break;
    const auto n = static_cast<double>(size);
    rate = 2 * n * n * n / *seconds;
    if (*seconds > kEnough) break;
  }
  return rate;
}

double copy_rate(Stream& stream, int64_t bytes) {
  Ledger own;
  Stream timed = stream;
  timed.ledger = &own;
  const Buffer memory(timed.device, 2 * bytes, own, "timing");
  const Shape shape = {bytes / size_of(DType::bfloat16)};
  const Tensor from = memory.tensor(0, DType::bfloat16, shape), to = memory.tensor(bytes, DType::bfloat16, shape);
  fill_random(timed, from);
  return 2.0 * static_cast<double>(bytes) / shortest_seconds(timed, [&] { copy(timed, from, to); });
}

double measure_copy_bandwidth(Stream& stream) {
  constexpr int64_t kBytes = int64_t{256} << 20;  // larger than caches
  return stream.device == DeviceKind::cpu ? measure_copy_bandwidth(stream.cpu) : copy_rate(stream, kBytes);
}

}  // namespace shiftron
