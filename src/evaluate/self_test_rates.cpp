// Times copies, matrix products, attention and sums over ranks on the device.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "core/memory.h"
#include "evaluate/self_test_parts.h"
#include "kernels/kernels.h"
#include "kernels/timing.h"

namespace shiftron {
namespace {

// Rates of other programs on GPUs with that name, measured elsewhere: bf16, a product of 8192³, a copy of gigabytes,
// causal attention of 8192 rows, 64 heads, 8 KV heads of 128. 0: unknown.
struct Reference {
  const char* device;
  double product, copy, attention_forward, attention_backward;  // per second
};
constexpr std::array<Reference, 2> kReferences = {
    {{"H200", 790e12, 4.3e12, 644e12, 541e12}, {"H100", 798e12, 3.0e12, 0, 0}}};

Reference reference_of(const std::string& device, SelfTestSize size) {
  for (const Reference& reference : kReferences) {
    if (size == SelfTestSize::full && device.find(reference.device) != std::string::npos) return reference;
  }
  return {};
}

class RandomMemory {
 public:
  RandomMemory(Stream& stream, DType dtype, Shape shape)
      : memory_(stream.device, shape.count() * size_of(dtype), *stream.ledger, "tensors"),
        tensor_(memory_.tensor(0, dtype, shape)) {
    fill_random(stream, tensor_);
  }
  operator Tensor() const { return tensor_; }
  operator ConstTensor() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Buffer memory_;
  Tensor tensor_;
};

// Chooses a problem large enough for full speed on this device.
int64_t choose(const Stream& stream, SelfTestSize size, int64_t of_gpu, int64_t of_cpu, int64_t small) {
  return size == SelfTestSize::small ? small : stream.device == DeviceKind::cuda ? of_gpu : of_cpu;
}

void measure_copy(Stream& stream, SelfTestSize size, const Reference& reference, SelfTestReport& report) {
  const int64_t bytes = choose(stream, size, 1 << 30, 1 << 25, 1 << 16);
  report.rates.push_back({.name = "copy",
                          .problem = fmt::format("{} MiB read and written", bytes >> 20),
                          .unit = "GB/s",
                          .rate = 1e-9 * copy_rate(stream, bytes),
                          .reference = 1e-9 * reference.copy,
                          .reference_of = reference.copy > 0 ? reference.device : ""});
}

void measure_product(Stream& stream, SelfTestSize size, const Reference& reference, SelfTestReport& report) {
  const int64_t n = choose(stream, size, 8192, 1024, 48);
  const DType dtype = stream.device == DeviceKind::cuda ? DType::bfloat16 : DType::float32;
  const RandomMemory x(stream, dtype, {n, n}), w(stream, dtype, {n, n}), y(stream, dtype, {n, n});
  const kernel_testing::Owned scratch(
      dtype, {stream.device == DeviceKind::cpu ? matmul_scratch(stream, dtype, n, n, n).count() : 0});
  const double seconds = shortest_seconds(
      stream, [&] { matmul_forward(stream, x, w, y, scratch.tensor().count() > 0 ? scratch.tensor() : Tensor()); });
  report.rates.push_back({.name = "product",
                          .problem = fmt::format("{0} x {0} x {0}, {1}", n, name_of(dtype)),
                          .unit = "TFLOP/s",
                          .rate = 2e-12 * static_cast<double>(n * n * n) / seconds,
                          .reference = 1e-12 * reference.product,
                          .reference_of = reference.product > 0 ? reference.device : ""});
}

// Counts the operations of one causal product for scores and one for values; backward counts 2.5 times as many.
void measure_attention(Stream& stream, SelfTestSize size, const Reference& reference, SelfTestReport& report) {
  const int64_t rows = choose(stream, size, 8192, 512, 32), heads = choose(stream, size, 64, 8, 4);
  const int64_t kv_heads = heads / 4 / (heads == 64 ? 2 : 1), dim = choose(stream, size, 128, 64, 8);
  const DType dtype = stream.device == DeviceKind::cuda ? DType::bfloat16 : DType::float32;
  const Shape wide = {rows, heads, dim}, narrow = {rows, kv_heads, dim};
  const auto random = [&](DType type, Shape shape) { return RandomMemory(stream, type, shape); };
  const RandomMemory q = random(dtype, wide), k = random(dtype, narrow), v = random(dtype, narrow),
                     out = random(dtype, wide), d_out = random(dtype, wide), d_q = random(dtype, wide),
                     d_k = random(dtype, narrow), d_v = random(dtype, narrow),
                     log_sum_exp = random(DType::float32, {heads, rows});
  const Buffer starts(stream.device, rows * size_of(DType::int32), *stream.ledger, "tensors");  // zeroed
  const Tensor start = starts.tensor(0, DType::int32, {rows});
  const AttentionShape shape{.sequence_length = rows};
  const Shape room = attention_scratch(stream, q, k, shape);
  const Buffer memory(stream.device, room.count() * size_of(DType::float32), *stream.ledger, "scratch");
  const Tensor scratch = memory.tensor(0, DType::float32, room);
  const double operations = 2.0 * static_cast<double>(rows * rows * heads * dim);
  const std::string problem =
      fmt::format("causal, {} rows, heads {}/{} of {}, {}", rows, heads, kv_heads, dim, name_of(dtype));
  const auto add = [&](const char* name, double count, double known, const std::function<void()>& call) {
    report.rates.push_back({.name = name,
                            .problem = problem,
                            .unit = "TFLOP/s",
                            .rate = 1e-12 * count / shortest_seconds(stream, call),
                            .reference = 1e-12 * known,
                            .reference_of = known > 0 ? reference.device : ""});
  };
  add("attention forward", operations, reference.attention_forward,
      [&] { attention_forward(stream, q, k, v, start, shape, out, log_sum_exp, scratch); });
  add("attention backward", 2.5 * operations, reference.attention_backward,
      [&] { attention_backward(stream, d_out, q, k, v, out, log_sum_exp, start, shape, d_q, d_k, d_v, scratch); });
}

}  // namespace

void measure_rates(Stream& stream, SelfTestSize size, const std::string& device, SelfTestReport& report) {
  const Reference reference = reference_of(device, size);
  measure_copy(stream, size, reference, report);
  measure_product(stream, size, reference, report);
  measure_attention(stream, size, reference, report);
}

void measure_all_reduce(Stream& stream, Communicator& group, SelfTestSize size, SelfTestReport& report) {
  if (group.size() == 1) return;
  const int64_t count = choose(stream, size, 1 << 27, 1 << 20, 1 << 10);
  const RandomMemory values(stream, DType::bfloat16, {count});
  const double seconds =
      shortest_seconds(stream, [&] { group.all_reduce(stream, InOut(values.tensor()), Reduction::sum).wait(stream); });
  const double share = 2.0 * (group.size() - 1) / group.size();  // share of the bytes that passes each rank's link
  report.rates.push_back({.name = "all_reduce, bus",
                          .problem = fmt::format("{} KiB among {} ranks", values.tensor().bytes() >> 10, group.size()),
                          .unit = "GB/s",
                          .rate = 1e-9 * share * static_cast<double>(values.tensor().bytes()) / seconds});
}

}  // namespace shiftron
