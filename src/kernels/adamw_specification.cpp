// Specification of AdamW (Loshchilov and Hutter 2019): decoupled decay, epsilon outside of the root.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {

void adamw(Stream&, const AdamW& parameters, ConstTensor scalars, Tensor gradient, Tensor master, Tensor first_moment,
           Tensor second_moment, Tensor weight) {
  for_type(master.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    const double* scalar = scalars.data<double>();
    A* g = gradient.data<A>();
    A* p = master.data<A>();
    A* m = first_moment.data<A>();
    A* v = second_moment.data<A>();
    const double learning_rate = scalar[kLearningRate] * parameters.learning_rate_scale;
    const A factor = static_cast<A>(scalar[kGradientFactor]);
    const A beta1 = static_cast<A>(parameters.beta1);
    const A beta2 = static_cast<A>(parameters.beta2);
    const A keep1 = static_cast<A>(1 - parameters.beta1);
    const A keep2 = static_cast<A>(1 - parameters.beta2);
    const A decay = static_cast<A>(1 - learning_rate * parameters.weight_decay);
    const A step = static_cast<A>(learning_rate / scalar[kBiasCorrection1]);
    const A root = static_cast<A>(std::sqrt(scalar[kBiasCorrection2]));
    const A epsilon = static_cast<A>(parameters.epsilon);
    const bool skip = scalar[kSkip] != 0;
    for (int64_t i = 0; i < master.count(); ++i) {
      const A scaled = g[i] * factor;
      g[i] = 0;
      if (skip) continue;
      m[i] = beta1 * m[i] + keep1 * scaled;
      v[i] = beta2 * v[i] + keep2 * scaled * scaled;
      p[i] = p[i] * decay - step * m[i] / (std::sqrt(v[i]) / root + epsilon);
      if (weight.defined()) weight.data<bfloat16>()[i] = round_to<bfloat16>(p[i]);
    }
  });
}

}  // namespace shiftron::specification
