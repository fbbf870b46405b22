// Learning-rate schedules as factors of the peak.
#include "config/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shiftron {
namespace {

// Where the rate is between final_fraction (0) and the peak (1) after share x of the fall.
double fall(LearningRateSchedule schedule, double x) {
  switch (schedule) {
    case LearningRateSchedule::cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * x));
    case LearningRateSchedule::linear:
      return 1 - x;
    case LearningRateSchedule::wsd:
      return 1 - std::sqrt(x);
    case LearningRateSchedule::constant:
      break;
  }
  return 1;
}

}  // namespace

int64_t effective_decay_steps(const OptimizerSection& optimizer, int64_t steps) {
  if (optimizer.schedule == LearningRateSchedule::constant) return 0;
  if (optimizer.decay_steps > 0) return optimizer.decay_steps;
  return optimizer.schedule == LearningRateSchedule::wsd ? steps / 5 : std::max<int64_t>(0, steps - optimizer.warmup);
}

double learning_rate(const OptimizerSection& optimizer, int64_t steps, int64_t step) {
  const double peak = optimizer.learning_rate;
  if (step < optimizer.warmup) return peak * static_cast<double>(step) / static_cast<double>(optimizer.warmup);
  const int64_t decay = effective_decay_steps(optimizer, steps);
  const int64_t start = optimizer.schedule == LearningRateSchedule::wsd ? steps - decay : optimizer.warmup;
  if (decay == 0 || step <= start) return peak;
  const double x = std::min(1.0, static_cast<double>(step - start) / static_cast<double>(decay));
  return peak * (optimizer.final_fraction + (1 - optimizer.final_fraction) * fall(optimizer.schedule, x));
}

}  // namespace shiftron
