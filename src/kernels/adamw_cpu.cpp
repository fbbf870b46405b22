// AdamW on the CPU in one pass over memory (Loshchilov and Hutter 2019): clip factor, moments, decay, update, bfloat16
// copy, zero gradient.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"

namespace shiftron::fast {
namespace {

struct Factors {
  float gradient, beta1, keep1, beta2, keep2, decay, step, root, epsilon;  // root = 1 / √c₂
};

template <bool with_weight>
SHIFTRON_INLINE void update_elements(const Factors& f, int64_t count, float* gradient, float* master, float* first,
                                     float* second, bfloat16* weight) {
  const Factors by = f;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * by.gradient;
    const float m = by.beta1 * first[i] + by.keep1 * g;
    const float v = by.beta2 * second[i] + by.keep2 * g * g;
    const float p = master[i] * by.decay - by.step * m / (std::sqrt(v) * by.root + by.epsilon);
    gradient[i] = 0.0f;
    first[i] = m;
    second[i] = v;
    master[i] = p;
    if constexpr (with_weight) weight[i] = to_bfloat16(p);
  }
}
SHIFTRON_CLONES void update(const Factors& f, int64_t count, float* gradient, float* master, float* first,
                            float* second) {
  update_elements<false>(f, count, gradient, master, first, second, nullptr);
}
SHIFTRON_CLONES void update(const Factors& f, int64_t count, float* gradient, float* master, float* first,
                            float* second, bfloat16* weight) {
  update_elements<true>(f, count, gradient, master, first, second, weight);
}

constexpr int64_t kBlock = 1 << 14;  // elements

}  // namespace

void adamw(Stream& stream, const AdamW& parameters, ConstTensor scalars, Tensor gradient, Tensor master,
           Tensor first_moment, Tensor second_moment, Tensor weight) {
  const auto* scalar = scalars.data<double>();
  auto* g = gradient.data<float>();
  if (scalar[kSkip] != 0) {
    parallel_blocks(stream.threads, gradient.count(), kBlock,
                    [&](int64_t begin, int64_t end) { std::fill(g + begin, g + end, 0.0f); });
    return;
  }
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
  auto* p = master.data<float>();
  auto* m = first_moment.data<float>();
  auto* v = second_moment.data<float>();
  auto* w = weight.defined() ? weight.data<bfloat16>() : nullptr;
  parallel_blocks(stream.threads, master.count(), kBlock, [&](int64_t begin, int64_t end) {
    if (w == nullptr)
      update(factors, end - begin, g + begin, p + begin, m + begin, v + begin);
    else
      update(factors, end - begin, g + begin, p + begin, m + begin, v + begin, w + begin);
  });
}

}  // namespace shiftron::fast
