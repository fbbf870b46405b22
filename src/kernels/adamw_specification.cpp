// Reference implementation of AdamW (Loshchilov and Hutter 2019): decoupled decay, epsilon outside of the root.
#include <algorithm>
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
namespace {

void adamw(const AdamW& how, const ConstTensor& scalars, const AdamWParameter& parameter) {
  const auto& [weight_decay, learning_rate_scale, to_unit_interval, gradient, weight, rest, first_moment,
               second_moment] = parameter;
  for_type(gradient.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    const double* scalar = scalars.data<double>();
    const A* g = gradient.data<A>();
    A* m = first_moment.data<A>();
    A* v = second_moment.data<A>();
    const double learning_rate = scalar[kLearningRate] * learning_rate_scale;
    const A factor = static_cast<A>(scalar[kGradientFactor]);
    const A beta1 = static_cast<A>(how.beta1);
    const A beta2 = static_cast<A>(how.beta2);
    const A keep1 = static_cast<A>(1 - how.beta1);
    const A keep2 = static_cast<A>(1 - how.beta2);
    const A decay = static_cast<A>(1 - learning_rate * weight_decay);
    const A step = static_cast<A>(learning_rate / scalar[kBiasCorrection1]);
    const A root = static_cast<A>(std::sqrt(scalar[kBiasCorrection2]));
    const A epsilon = static_cast<A>(how.epsilon);
    if (scalar[kSkip] != 0) return;
    const auto load = [&](int64_t i) {
      return rest.defined() ? static_cast<A>(join_halves(weight.data<bfloat16>()[i], rest.data<uint16_t>()[i]))
                            : weight.data<A>()[i];
    };
    const auto store = [&](int64_t i, A p) {
      if (!rest.defined()) {
        weight.data<A>()[i] = p;
        return;
      }
      weight.data<bfloat16>()[i] = weight_half(static_cast<float>(p));
      rest.data<uint16_t>()[i] = rest_half(static_cast<float>(p));
    };
    for (int64_t i = 0; i < weight.count(); ++i) {
      const A scaled = g[i] * factor;
      m[i] = beta1 * m[i] + keep1 * scaled;
      v[i] = beta2 * v[i] + keep2 * scaled * scaled;
      const A p = load(i) * decay - step * m[i] / (std::sqrt(v[i]) / root + epsilon);
      store(i, to_unit_interval ? std::min(std::max(p, A{0}), A{1}) : p);
    }
  });
}

}  // namespace

void adamw(const CpuOptions&, const AdamW& how, ConstTensor scalars, const std::vector<AdamWParameter>& parameters) {
  for (const AdamWParameter& parameter : parameters) adamw(how, scalars, parameter);
}

}  // namespace shiftron::specification
