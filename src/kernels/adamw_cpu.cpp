// AdamW on the CPU in one pass over memory (Loshchilov and Hutter 2019): clip factor, moments, decay, update.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

struct Factors {
  float gradient, beta1, keep1, beta2, keep2, decay, step, root, epsilon;  // root = 1 / √c₂
};

// Where masters lie: whole, or in two halves.
struct Whole {
  float* masters;
  SHIFTRON_INLINE float load(int64_t i) const { return masters[i]; }
  SHIFTRON_INLINE void store(int64_t i, float p) const { masters[i] = p; }
};
struct Halves {
  bfloat16* weight;
  uint16_t* rest;
  SHIFTRON_INLINE float load(int64_t i) const { return join_halves(weight[i], rest[i]); }
  SHIFTRON_INLINE void store(int64_t i, float p) const {
    weight[i] = weight_half(p);
    rest[i] = rest_half(p);
  }
};

template <typename Masters>
SHIFTRON_INLINE void update_elements(const Factors& f, int64_t count, const float* gradient, Masters masters,
                                     float* first, float* second) {
  const Factors by = f;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * by.gradient;
    const float m = by.beta1 * first[i] + by.keep1 * g;
    const float v = by.beta2 * second[i] + by.keep2 * g * g;
    const float p = masters.load(i) * by.decay - by.step * m / (std::sqrt(v) * by.root + by.epsilon);
    first[i] = m;
    second[i] = v;
    masters.store(i, p);
  }
}
SHIFTRON_CLONES void update(const Factors& f, int64_t count, const float* gradient, float* masters, float* first,
                            float* second) {
  update_elements(f, count, gradient, Whole{masters}, first, second);
}
SHIFTRON_CLONES void update(const Factors& f, int64_t count, const float* gradient, bfloat16* weight, uint16_t* rest,
                            float* first, float* second) {
  update_elements(f, count, gradient, Halves{weight, rest}, first, second);
}

constexpr int64_t kBlock = 1 << 14;  // elements

}  // namespace

void adamw(const CpuOptions& cpu, const AdamW& parameters, ConstTensor scalars, ConstTensor gradient, Tensor weight,
           Tensor rest, Tensor first_moment, Tensor second_moment) {
  const auto* scalar = scalars.data<double>();
  const auto* g = gradient.data<float>();
  if (scalar[kSkip] != 0) return;
  const double learning_rate = scalar[kLearningRate] * parameters.learning_rate_scale;
  const auto round = [](double value) { return static_cast<float>(value); };
  const Factors factors{round(scalar[kGradientFactor]),
                        round(parameters.beta1),
                        round(1 - parameters.beta1),
                        round(parameters.beta2),
                        round(1 - parameters.beta2),
                        round(1 - learning_rate * parameters.weight_decay),
                        round(learning_rate / scalar[kBiasCorrection1]),
                        round(1 / std::sqrt(scalar[kBiasCorrection2])),
                        round(parameters.epsilon)};
  auto* m = first_moment.data<float>();
  auto* v = second_moment.data<float>();
  if (!rest.defined()) {
    auto* p = weight.data<float>();
    parallel_blocks(cpu.threads, gradient.count(), kBlock, [&](int64_t begin, int64_t end) {
      update(factors, end - begin, g + begin, p + begin, m + begin, v + begin);
    });
    return;
  }
  auto* w = weight.data<bfloat16>();
  auto* r = rest.data<uint16_t>();
  parallel_blocks(cpu.threads, gradient.count(), kBlock, [&](int64_t begin, int64_t end) {
    update(factors, end - begin, g + begin, w + begin, r + begin, m + begin, v + begin);
  });
}

}  // namespace shiftron::fast
