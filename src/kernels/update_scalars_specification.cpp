// Gradient norm, clip factor, skip flag and bias corrections of an update, as scalars of the device.
#include <algorithm>
#include <cmath>

#include "kernels/bodies.h"

namespace shiftron::specification {

void update_scalars(const CpuOptions&, const UpdateRule& rule, ConstTensor sums, int64_t squares,
                    ConstTensor learning_rate, Tensor counters, Tensor scalars, Tensor result) {
  const double* sum = sums.data<double>();
  double* counter = counters.data<double>();
  double* scalar = scalars.data<double>();
  double total = 0;
  for (int64_t i = 0; i < squares; ++i) total += sum[kFirstSquare + i];
  const double counted = sum[kCounted];
  const double correction = counted > 0 ? rule.nominal / counted : 0;
  const double norm = std::sqrt(total) * correction;
  const double loss = counted > 0 ? sum[kLossSum] / counted : 0;
  const double clipping = rule.clip > 0 ? std::min(1.0, rule.clip / (norm + 1e-6)) : 1.0;
  const bool skip = counted <= 0 || !(norm * clipping <= kLargestNorm) || !std::isfinite(loss);
  counter[kApplied] += skip ? 0 : 1;
  counter[kSkipped] += skip ? 1 : 0;
  counter[kSkippedInRow] = skip ? counter[kSkippedInRow] + 1 : 0;
  scalar[kLearningRate] = learning_rate.data<double>()[0];
  scalar[kGradientFactor] = correction * clipping;
  scalar[kBiasCorrection1] = 1 - std::pow(rule.beta1, counter[kApplied]);
  scalar[kBiasCorrection2] = 1 - std::pow(rule.beta2, counter[kApplied]);
  scalar[kSkip] = skip ? 1 : 0;
  double* output = result.data<double>();
  output[kLoss] = loss;
  output[kGradientNorm] = norm;
  output[kWasSkipped] = skip ? 1 : 0;
  output[kStop] = sum[kStopRequests];
}

}  // namespace shiftron::specification
