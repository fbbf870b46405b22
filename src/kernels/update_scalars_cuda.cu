// Gradient norm, clip factor, skip flag and bias corrections of an update in CUDA: one thread, without the host.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/device_cuda.h"

namespace shiftron::cuda {
namespace {

__global__ void __launch_bounds__(kWarp)
    update_scalars_kernel(UpdateRule rule, const double* sums, int64_t squares, const double* learning_rate,
                          double* counters, double* scalars, double* result) {
  await_earlier_kernels();
  if (threadIdx.x > 0) return;
  double total = 0;
  for (int64_t i = 0; i < squares; ++i) total += sums[kFirstSquare + i];
  const double counted = sums[kCounted];
  const double correction = counted > 0 ? rule.nominal / counted : 0;
  const double norm = std::sqrt(total) * correction;
  const double loss = counted > 0 ? sums[kLossSum] / counted : 0;
  const double clipped = rule.clip / (norm + 1e-6);
  const double clipping = rule.clip > 0 && clipped < 1 ? clipped : 1;
  const bool skip = counted <= 0 || !(norm * clipping <= kLargestNorm) || !std::isfinite(loss);
  counters[kApplied] += skip ? 0 : 1;
  counters[kSkipped] += skip ? 1 : 0;
  counters[kSkippedInRow] = skip ? counters[kSkippedInRow] + 1 : 0;
  scalars[kLearningRate] = *learning_rate;
  scalars[kGradientFactor] = correction * clipping;
  scalars[kBiasCorrection1] = 1 - std::pow(rule.beta1, counters[kApplied]);
  scalars[kBiasCorrection2] = 1 - std::pow(rule.beta2, counters[kApplied]);
  scalars[kSkip] = skip ? 1 : 0;
  result[kLoss] = loss;
  result[kGradientNorm] = norm;
  result[kWasSkipped] = skip ? 1 : 0;
  result[kStop] = sums[kStopRequests];
}

}  // namespace

void update_scalars(const CudaContext& context, const UpdateRule& rule, ConstTensor sums, int64_t squares,
                    ConstTensor learning_rate, Tensor counters, Tensor scalars, Tensor result) {
  launch_kernel("update_scalars", update_scalars_kernel, Grid{}, kWarp, context.stream, rule, device_data<double>(sums),
                squares, device_data<double>(learning_rate), device_data<double>(counters),
                device_data<double>(scalars), device_data<double>(result));
}

}  // namespace shiftron::cuda
