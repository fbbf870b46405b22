// Reference implementation of the shift (paper, equations 8 and 9, applied before RoPE) with rotary positions (Su et
// al. 2021).
#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
namespace {

// Arguments of a call in the types of one instantiation.
template <typename T>
struct Call {
  using A = Accumulation<T>;
  ConstTensor x;
  const ShiftRope& how;
  int64_t heads = x.extent(1);
  int64_t head_dim = x.extent(2);
  int64_t taps = how.taps.defined() ? how.taps.extent(1) : 1;

  A tap(int64_t head, int64_t j) const {
    return how.taps.defined() ? how.taps.data<A>()[head * how.taps.stride(0) + j] : A{1};
  }
  // The row that tap j of row t multiplies; −1 and below are carried rows.
  int64_t source(int64_t t, int64_t j) const { return t - (taps - 1 - j); }
  bool mixes(int64_t t, int64_t row) const {
    if (row == t && !how.taps.defined()) return true;
    const int64_t first = how.carried.defined() ? -how.carried.extent(0) : 0;
    return row >= first && row >= how.shift_start.data<int32_t>()[t];
  }
  A raw(int64_t row, int64_t head, int64_t d) const {
    if (row >= 0) return to_accumulate(x.data<T>()[row * x.stride(0) + head * x.stride(1) + d]);
    const ConstTensor& carried = how.carried;
    return to_accumulate(
        carried.data<T>()[(carried.extent(0) + row) * carried.stride(0) + head * carried.stride(1) + d]);
  }
  A shifted(int64_t t, int64_t head, int64_t d) const {
    A z = 0;
    for (int64_t j = 0; j < taps; ++j) {
      if (mixes(t, source(t, j))) z += tap(head, j) * raw(source(t, j), head, d);
    }
    return z;
  }
  // Element d of `value` (a function of d) rotated by the position of row t; direction −1 rotates back.
  template <typename Value>
  A rotated(int64_t t, int64_t d, A direction, Value value) const {
    if (!how.rope.defined()) return value(d);
    const int64_t half = head_dim / 2;
    const int64_t i = d < half ? d : d - half;
    const A* entry = how.rope.data<A>() + how.positions.data<int32_t>()[t] * how.rope.stride(1) + i;
    const A cosine = entry[0];
    const A sine = direction * entry[how.rope.stride(0)];
    return d < half ? value(d) * cosine - value(d + half) * sine : value(d) * cosine + value(d - half) * sine;
  }
};

void forward(const ConstTensor& x, const ShiftRope& how, const Tensor& y) {
  for_type(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const Call<T> call{x, how};
    for (int64_t t = 0; t < x.extent(0); ++t) {
      for (int64_t head = 0; head < call.heads; ++head) {
        T* out = y.data<T>() + t * y.stride(0) + head * y.stride(1);
        for (int64_t d = 0; d < call.head_dim; ++d) {
          out[d] = round_to<T>(call.rotated(t, d, 1, [&](int64_t at) { return call.shifted(t, head, at); }));
        }
      }
    }
  });
}

void backward(const ConstTensor& d_y, const ConstTensor& x, const ShiftRope& how, const Tensor& d_x,
              const Tensor& d_taps) {
  for_type(x.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    const Call<T> call{x, how};
    const int64_t rows = x.extent(0);
    // Gradient of z: d_y rotated back.
    const auto g = [&](int64_t t, int64_t head, int64_t d) {
      const T* in = d_y.data<T>() + t * d_y.stride(0) + head * d_y.stride(1);
      return call.rotated(t, d, -1, [&](int64_t at) { return to_accumulate(in[at]); });
    };
    for (int64_t head = 0; head < call.heads; ++head) {
      for (int64_t s = 0; s < rows; ++s) {
        T* out = d_x.data<T>() + s * d_x.stride(0) + head * d_x.stride(1);
        for (int64_t d = 0; d < call.head_dim; ++d) {
          A sum = 0;
          for (int64_t j = 0; j < call.taps; ++j) {
            const int64_t t = s + (call.taps - 1 - j);  // the row into which tap j mixed row s
            if (t < rows && call.mixes(t, s)) sum += call.tap(head, j) * g(t, head, d);
          }
          out[d] = round_to<T>(sum);
        }
      }
      if (!how.taps.defined()) continue;
      for (int64_t j = 0; j < call.taps; ++j) {
        A sum = 0;
        for (int64_t t = 0; t < rows; ++t) {
          const int64_t s = call.source(t, j);
          if (!call.mixes(t, s)) continue;
          for (int64_t d = 0; d < call.head_dim; ++d) sum += g(t, head, d) * call.raw(s, head, d);
        }
        d_taps.data<A>()[head * d_taps.stride(0) + j] += sum;
      }
    }
  });
}

}  // namespace

void shift_rope_forward(const CpuOptions&, const std::vector<ShiftForward>& streams) {
  for (const auto& [x, how, y] : streams) forward(x, how, y);
}

void shift_rope_backward(const CpuOptions&, const std::vector<ShiftBackward>& streams, Tensor) {
  for (const auto& [d_y, x, how, d_x, d_taps] : streams) backward(d_y, x, how, d_x, d_taps);
}

}  // namespace shiftron::specification
