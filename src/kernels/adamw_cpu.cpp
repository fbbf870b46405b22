// AdamW on the CPU in one pass over memory (Loshchilov and Hutter 2019): clip factor, moments, decay, update, bounds.
#include <cmath>
#include <limits>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

struct Factors {
  float gradient, beta1, keep1, beta2, keep2, decay, step, root, epsilon;  // root = 1 / √c₂
  float lowest, highest;                                                   // infinite: no bound
};

// How masters are stored: whole, or in two halves.
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
    masters.store(i, p < by.lowest ? by.lowest : p > by.highest ? by.highest : p);
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

void adamw(const CpuOptions& cpu, const AdamW& how, const double* scalar, const AdamWParameter& parameter) {
  const auto* g = parameter.gradient.data<float>();
  const double learning_rate = scalar[kLearningRate] * parameter.learning_rate_scale;
  const auto round = [](double value) { return static_cast<float>(value); };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool bounded = parameter.to_unit_interval;
  const Factors factors{round(scalar[kGradientFactor]),
                        round(how.beta1),
                        round(1 - how.beta1),
                        round(how.beta2),
                        round(1 - how.beta2),
                        round(1 - learning_rate * parameter.weight_decay),
                        round(learning_rate / scalar[kBiasCorrection1]),
                        round(1 / std::sqrt(scalar[kBiasCorrection2])),
                        round(how.epsilon),
                        bounded ? 0 : -kInfinity,
                        bounded ? 1 : kInfinity};
  auto* m = parameter.first_moment.data<float>();
  auto* v = parameter.second_moment.data<float>();
  if (!parameter.rest.defined()) {
    auto* p = parameter.weight.data<float>();
    parallel_blocks(cpu.threads, parameter.gradient.count(), kBlock, [&](int64_t begin, int64_t end) {
      update(factors, end - begin, g + begin, p + begin, m + begin, v + begin);
    });
    return;
  }
  auto* w = parameter.weight.data<bfloat16>();
  auto* r = parameter.rest.data<uint16_t>();
  parallel_blocks(cpu.threads, parameter.gradient.count(), kBlock, [&](int64_t begin, int64_t end) {
    update(factors, end - begin, g + begin, w + begin, r + begin, m + begin, v + begin);
  });
}

}  // namespace

void adamw(const CpuOptions& cpu, const AdamW& how, ConstTensor scalars,
           const std::vector<AdamWParameter>& parameters) {
  const auto* scalar = scalars.data<double>();
  if (scalar[kSkip] != 0) return;
  for (const AdamWParameter& parameter : parameters) adamw(cpu, how, scalar, parameter);
}

}  // namespace shiftron::fast
