// Times every kernel at the shapes of two small models: kernels_benchmark [threads] [--benchmark_filter=...].
// toy: hidden 1024, 8 heads × 128, ffn 2752, vocabulary 8000; 30m: hidden 512, 8/4 heads × 64, ffn 1408, vocabulary
// 8192; 8 sequences of 512 tokens. The ledger's bytes and operations give GB/s and GFLOP/s; attention counts its causal
// half. With 1 thread rates use processor time, so that they are meaningful on a loaded machine.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/philox.h"
#include "kernels/choose_products.h"
#include "kernels/element.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

struct Model {
  const char* name;
  int64_t hidden, heads, kv_heads, head_dim, ffn, vocabulary;
};
constexpr Model kToy{"toy", 1024, 8, 8, 128, 2752, 8000};
constexpr Model kThirty{"30m", 512, 8, 4, 64, 1408, 8192};
constexpr int64_t kSamples = 8, kLength = 512, kRows = kSamples * kLength;

int threads = 2;

// Tensors that live as long as one benchmark.
class Bench {
 public:
  Bench() {
    stream.ledger = &ledger;
    stream.cpu.threads = threads;
    stream.cpu.bfloat16 = untimed_products(products_here());
  }
  Tensor zeros(DType dtype, Shape shape) {
    buffers_.emplace_back(DeviceKind::cpu, shape.count() * size_of(dtype), ledger, "benchmark");
    return buffers_.back().tensor(0, dtype, shape);
  }
  Tensor normal(DType dtype, Shape shape, double scale = 1) {
    const Tensor tensor = zeros(dtype, shape);
    const Philox philox(1, "benchmark");
    for (int64_t i = 0; i < shape.count(); ++i) {
      const auto value = static_cast<float>(scale * philox.normal(static_cast<uint64_t>(i % 65521)));
      if (dtype == DType::float32)
        tensor.data<float>()[i] = value;
      else
        tensor.data<bfloat16>()[i] = to_bfloat16(value);
    }
    return tensor;
  }
  // value(i) for every row.
  Tensor integers(const std::function<int64_t(int64_t)>& value) {
    const Tensor tensor = zeros(DType::int32, {kRows});
    for (int64_t i = 0; i < kRows; ++i) tensor.data<int32_t>()[i] = static_cast<int32_t>(value(i));
    return tensor;
  }
  void time(benchmark::State& state, double share_of_operations, const std::function<void()>& call) {
    call();
    ledger.clear_work();
    call();
    double bytes = 0, operations = 0;
    for (const auto& [name, cost] : ledger.kernels()) {
      bytes += static_cast<double>(cost.bytes_read + cost.bytes_written);
      operations += static_cast<double>(cost.operations) * share_of_operations;
    }
    for (auto _ : state) call();
    const auto runs = static_cast<double>(state.iterations());
    state.counters["GB/s"] = benchmark::Counter(bytes * runs / 1e9, benchmark::Counter::kIsRate);
    state.counters["GFLOP/s"] = benchmark::Counter(operations * runs / 1e9, benchmark::Counter::kIsRate);
  }

  Ledger ledger;
  Stream stream;

 private:
  std::vector<Buffer> buffers_;
};

using Body = std::function<void(benchmark::State&, Bench&)>;

void add(const std::string& name, const Body& body) {
  auto* made = benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) {
    Bench bench;
    body(state, bench);
  });
  made->Unit(benchmark::kMillisecond);
  if (threads > 1) made->UseRealTime();
}

void add_products(const std::string& prefix, DType dtype, int64_t in, int64_t out) {
  std::string shape = std::to_string(in);
  shape.insert(0, 1, '/').append("x").append(std::to_string(out));
  add(prefix + "matmul_forward" + shape, [=](benchmark::State& state, Bench& b) {
    const Tensor x = b.normal(dtype, {kRows, in}), w = b.normal(dtype, {out, in}), y = b.zeros(dtype, {kRows, out});
    b.time(state, 1, [&] { matmul_forward(b.stream, x, w, y); });
  });
  add(prefix + "matmul_backward_input" + shape, [=](benchmark::State& state, Bench& b) {
    const Tensor d_y = b.normal(dtype, {kRows, out}), w = b.normal(dtype, {out, in}), d_x = b.zeros(dtype, {kRows, in});
    b.time(state, 1, [&] { matmul_backward_input(b.stream, d_y, w, d_x); });
  });
  add(prefix + "matmul_backward_weight" + shape, [=](benchmark::State& state, Bench& b) {
    const Tensor d_y = b.normal(dtype, {kRows, out}), x = b.normal(dtype, {kRows, in});
    const Tensor d_w = b.zeros(DType::float32, {out, in});
    b.time(state, 1, [&] { matmul_backward_weight(b.stream, d_y, x, InOut(d_w)); });
  });
}

// Query, key and value heads as column slices of one product's result.
struct Heads {
  Tensor q, k, v;
};
Heads cut(const Model& model, const Tensor& fused) {
  const int64_t q = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
  return {fused.slice(1, 0, q).split_last(model.heads, model.head_dim),
          fused.slice(1, q, kv).split_last(model.kv_heads, model.head_dim),
          fused.slice(1, q + kv, kv).split_last(model.kv_heads, model.head_dim)};
}
Shape fused_shape(const Model& model) {
  return {kRows, (model.heads + 2 * model.kv_heads) * model.head_dim};
}

void add_attention(const std::string& prefix, DType dtype, const Model& model) {
  for (const bool backward : {false, true}) {
    add(prefix + (backward ? "attention_backward" : "attention_forward"), [=](benchmark::State& state, Bench& b) {
      const Heads in = cut(model, b.normal(dtype, fused_shape(model)));
      const Heads d_in = cut(model, b.zeros(dtype, fused_shape(model)));
      const Shape heads{kRows, model.heads, model.head_dim};
      const Tensor out = b.zeros(dtype, heads), d_out = b.normal(dtype, heads);
      const Tensor start = b.integers([](int64_t i) { return i / kLength * kLength; });
      const Tensor log_sum_exp = b.zeros(DType::float32, {model.heads, kRows});
      const AttentionShape shape{.sequence_length = kLength};
      const Tensor scratch = b.zeros(DType::float32, attention_scratch(b.stream, in.q, in.k, shape));
      attention_forward(b.stream, in.q, in.k, in.v, start, shape, out, log_sum_exp, scratch);
      b.time(state, 1, [&] {
        if (backward)
          attention_backward(b.stream, d_out, in.q, in.k, in.v, out, log_sum_exp, start, shape, d_in.q, d_in.k, d_in.v,
                             scratch);
        else
          attention_forward(b.stream, in.q, in.k, in.v, start, shape, out, log_sum_exp, scratch);
      });
    });
  }
}

// Key and value of a layer, with `taps` taps on each (0: RoPE on the key alone, as without shift).
void add_shift(const std::string& prefix, DType dtype, const Model& model, int64_t taps) {
  for (const bool backward : {false, true}) {
    add(prefix + (backward ? "shift_rope_backward/taps" : "shift_rope_forward/taps") + std::to_string(taps),
        [=](benchmark::State& state, Bench& b) {
          const Heads in = cut(model, b.normal(dtype, fused_shape(model)));
          const Heads d_in = cut(model, b.zeros(dtype, fused_shape(model)));
          const Shape shape{kRows, model.kv_heads, model.head_dim};
          const Tensor k = b.normal(dtype, shape), v = b.normal(dtype, shape);
          ShiftRope key, value;
          Tensor d_taps;
          key.rope = b.zeros(DType::float32, {2, kLength, model.head_dim / 2});
          key.positions = b.integers([](int64_t i) { return i % kLength; });
          if (taps > 0) {
            key.taps = value.taps = b.normal(DType::float32, {model.kv_heads, taps});
            key.shift_start = value.shift_start = b.integers([](int64_t i) { return i / kLength * kLength; });
            d_taps = b.zeros(DType::float32, {model.kv_heads, taps});
          }
          std::vector<ShiftForward> forwards = {{in.k, key, k}};
          std::vector<ShiftBackward> backwards = {{k, in.k, key, d_in.k, d_taps}};
          if (taps > 0) {
            forwards.push_back({in.v, value, v});
            backwards.push_back({v, in.v, value, d_in.v, d_taps});
          }
          const Tensor scratch = b.zeros(DType::float32, shift_rope_scratch(b.stream, backwards));
          b.time(state, 1, [&] {
            if (backward)
              shift_rope_backward(b.stream, backwards, scratch);
            else
              shift_rope_forward(b.stream, forwards);
          });
        });
  }
}

void add_rows(const std::string& prefix, DType dtype, const Model& model) {
  add(prefix + "rms_norm_forward", [=](benchmark::State& state, Bench& b) {
    const Tensor x = b.normal(dtype, {kRows, model.hidden}), y = b.zeros(dtype, {kRows, model.hidden});
    const Tensor w = b.normal(DType::float32, {model.hidden}), r = b.zeros(DType::float32, {kRows});
    b.time(state, 1, [&] { rms_norm_forward(b.stream, x, w, 1e-5, y, r); });
  });
  add(prefix + "add_rms_norm_forward", [=](benchmark::State& state, Bench& b) {
    const Shape shape{kRows, model.hidden};
    const Tensor residual = b.zeros(dtype, shape), x = b.normal(dtype, shape), y = b.zeros(dtype, shape);
    const Tensor w = b.normal(DType::float32, {model.hidden}), r = b.zeros(DType::float32, {kRows});
    b.time(state, 1, [&] { add_rms_norm_forward(b.stream, residual, InOut(x), w, 1e-5, y, r); });
  });
  add(prefix + "rms_norm_backward", [=](benchmark::State& state, Bench& b) {
    const Shape shape{kRows, model.hidden};
    const Tensor x = b.normal(dtype, shape), d_y = b.normal(dtype, shape), d_x = b.zeros(dtype, shape);
    const Tensor w = b.normal(DType::float32, {model.hidden}), d_w = b.zeros(DType::float32, {model.hidden});
    const Tensor r = b.zeros(DType::float32, {kRows});
    const Tensor scratch = b.zeros(DType::float32, rms_norm_scratch({}, kRows, model.hidden));
    b.time(state, 1, [&] { rms_norm_backward(b.stream, d_y, x, w, r, InOut(d_x), InOut(d_w), scratch); });
  });
  add(prefix + "swiglu_forward", [=](benchmark::State& state, Bench& b) {
    const Tensor fused = b.normal(dtype, {kRows, 2 * model.ffn}), y = b.zeros(dtype, {kRows, model.ffn});
    const Tensor gate = fused.slice(1, 0, model.ffn), up = fused.slice(1, model.ffn, model.ffn);
    b.time(state, 1, [&] { swiglu_forward(b.stream, gate, up, y); });
  });
  add(prefix + "swiglu_backward", [=](benchmark::State& state, Bench& b) {
    const Tensor fused = b.normal(dtype, {kRows, 2 * model.ffn}), d_fused = b.zeros(dtype, {kRows, 2 * model.ffn});
    const Tensor d_y = b.normal(dtype, {kRows, model.ffn});
    const auto half = [&](const Tensor& tensor, int64_t i) { return tensor.slice(1, i * model.ffn, model.ffn); };
    b.time(state, 1,
           [&] { swiglu_backward(b.stream, d_y, half(fused, 0), half(fused, 1), half(d_fused, 0), half(d_fused, 1)); });
  });
  add(prefix + "add", [=](benchmark::State& state, Bench& b) {
    const Tensor x = b.normal(dtype, {kRows, model.hidden}), y = b.zeros(dtype, {kRows, model.hidden});
    b.time(state, 1, [&] { shiftron::add(b.stream, x, y, y); });
  });
  add(prefix + "embedding_forward", [=](benchmark::State& state, Bench& b) {
    const Tensor ids = b.integers([&](int64_t i) { return i * 7919 % model.vocabulary; });
    const Tensor table = b.normal(dtype, {model.vocabulary, model.hidden}), y = b.zeros(dtype, {kRows, model.hidden});
    b.time(state, 1, [&] { embedding_forward(b.stream, ids, table, 0, y); });
  });
  add(prefix + "embedding_backward", [=](benchmark::State& state, Bench& b) {
    const Tensor ids = b.integers([&](int64_t i) { return i * 7919 % model.vocabulary; });
    const Tensor d_y = b.normal(dtype, {kRows, model.hidden});
    const Tensor d_table = b.zeros(DType::float32, {model.vocabulary, model.hidden});
    b.time(state, 1, [&] { embedding_backward(b.stream, ids, d_y, 0, InOut(d_table)); });
  });
}

void add_loss(const std::string& prefix, DType dtype, const Model& model) {
  add(prefix + "cross_entropy_statistics", [=](benchmark::State& state, Bench& b) {
    const Tensor logits = b.normal(dtype, {kRows, model.vocabulary}),
                 out = b.zeros(DType::float32, {kRows, kRowStatistics});
    const Tensor targets = b.integers([](int64_t i) { return i; });
    b.time(state, 1, [&] { cross_entropy_statistics(b.stream, logits, targets, 0, out); });
  });
  add(prefix + "cross_entropy_backward", [=](benchmark::State& state, Bench& b) {
    const Tensor logits = b.normal(dtype, {kRows, model.vocabulary}), sums = b.zeros(DType::float32, {kRows});
    const Tensor targets = b.integers([](int64_t i) { return i; });
    b.time(state, 1, [&] { cross_entropy_backward(b.stream, InOut(logits), sums, targets, 0, 1.0); });
  });
  add(prefix + "cross_entropy", [=](benchmark::State& state, Bench& b) {
    const Tensor logits = b.normal(dtype, {kRows, model.vocabulary}), losses = b.zeros(DType::float32, {kRows});
    const Tensor targets = b.integers([](int64_t i) { return i; }), correct = b.zeros(DType::float32, {kRows});
    b.time(state, 1, [&] { cross_entropy(b.stream, InOut(logits), targets, 1.0, losses, correct); });
  });
}

void add_optimizer() {
  constexpr int64_t kCount = 29'000'000;
  for (const bool halves : {false, true}) {
    add(halves ? "adamw/29M_in_two_halves" : "adamw/29M", [halves](benchmark::State& state, Bench& b) {
      const Tensor g = b.normal(DType::float32, {kCount});
      const Tensor p = b.normal(halves ? DType::bfloat16 : DType::float32, {kCount});
      const Tensor m = b.zeros(DType::float32, {kCount}), v = b.zeros(DType::float32, {kCount});
      const Tensor rest = halves ? b.zeros(DType::uint16, {kCount}) : Tensor();
      const Tensor scalars = b.zeros(DType::float64, {kUpdateScalars});
      for (int i = 0; i < kSkip; ++i) scalars.data<double>()[i] = 0.5;
      const AdamW how{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
      const AdamWParameter parameter{
          .weight_decay = 0.1, .gradient = g, .weight = p, .rest = rest, .first_moment = m, .second_moment = v};
      b.time(state, 1, [&] { adamw(b.stream, how, scalars, {parameter}); });
    });
  }
  add("sum_of_squares/29M", [](benchmark::State& state, Bench& b) {
    const Tensor x = b.normal(DType::float32, {kCount}), sum = b.zeros(DType::float64, {1});
    b.time(state, 1, [&] { sum_of_squares(b.stream, {{x, 0}}, InOut(sum)); });
  });
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  using namespace shiftron;
  benchmark::Initialize(&argc, argv);
  if (argc > 1) threads = std::atoi(argv[1]);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const Model& model : {kToy, kThirty}) {
      const std::string prefix = std::string(model.name) + "/" + name_of(dtype) + "/";
      const int64_t q = model.heads * model.head_dim;
      add_products(prefix, dtype, model.hidden, fused_shape(model)[1]);
      add_products(prefix, dtype, q, model.hidden);
      add_products(prefix, dtype, model.hidden, 2 * model.ffn);
      add_products(prefix, dtype, model.ffn, model.hidden);
      add_products(prefix, dtype, model.hidden, model.vocabulary);
      add_attention(prefix, dtype, model);
      for (const int64_t taps : {0, 2}) add_shift(prefix, dtype, model, taps);
      add_rows(prefix, dtype, model);
      add_loss(prefix, dtype, model);
    }
  }
  add_optimizer();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
