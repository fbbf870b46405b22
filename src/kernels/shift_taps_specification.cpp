// Taps from raw parameters, their gradient, and the RoPE table.
#include <algorithm>
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
void shift_taps_forward(const CpuOptions&, ConstTensor raw, TapForm form, Tensor taps) {
  for_type(taps.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    for (int64_t head = 0; head < taps.extent(0); ++head) {
      const A* in = raw.data<A>() + head * raw.stride(0);
      A* out = taps.data<A>() + head * taps.stride(0);
      if (form == TapForm::gate) {
        out[0] = sigmoid(-in[0]);  // 1 − s without cancellation
        out[1] = sigmoid(in[0]);
        continue;
      }
      for (int64_t j = 0; j < taps.extent(1); ++j) {
        out[j] = form == TapForm::clamp ? std::min(std::max(in[j], A{0}), A{1}) : in[j];
      }
    }
  });
}

void shift_taps_backward(const CpuOptions&, ConstTensor raw, TapForm form, ConstTensor d_taps, Tensor sums) {
  for_type(d_taps.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    for (int64_t head = 0; head < d_taps.extent(0); ++head) {
      const A* in = raw.data<A>() + head * raw.stride(0);
      const A* d_out = d_taps.data<A>() + head * d_taps.stride(0);
      A* d_in = sums.data<A>() + head * sums.stride(0);
      if (form == TapForm::gate) {  // taps (1 − s, s), ds = s (1 − s)
        d_in[0] += sigmoid(in[0]) * sigmoid(-in[0]) * (d_out[1] - d_out[0]);
        continue;
      }
      for (int64_t j = 0; j < d_taps.extent(1); ++j) {
        const bool passes = form == TapForm::free || (in[j] >= A{0} && in[j] <= A{1});
        if (passes) d_in[j] += d_out[j];
      }
    }
  });
}

void rope_table(const CpuOptions&, double base, Tensor table) {
  const int64_t positions = table.extent(1);
  const int64_t half = table.extent(2);
  for_type(table.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    A* cosine = table.data<A>();
    A* sine = cosine + table.stride(0);
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      for (int64_t position = 0; position < positions; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        cosine[position * table.stride(1) + i] = static_cast<A>(std::cos(angle));
        sine[position * table.stride(1) + i] = static_cast<A>(std::sin(angle));
      }
    }
  });
}

}  // namespace shiftron::specification
