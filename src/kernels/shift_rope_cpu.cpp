// KV shift (paper, equations 8 and 9) fused with rotary positions on the CPU, one pass over memory each way.
// Forward: z_t = Σ_b c_b x_{t−b} over the rows that t may mix in, y = rotation of z by its position.
// Backward: g = inverse rotation of d_y, d_x_s = Σ_b c_b g_{s+b}, d_c_b = Σ g_t x_{t−b} in partial sums of kShiftRows
// rows.
#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"
#include "kernels/row_blocks.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kMaxTaps = 4;
constexpr int64_t kGroupWidth = 1024;  // elements of a row in work at once; the specification serves wider heads

// A tensor [rows, heads, head_dim].
template <typename T>
struct View {
  T* data;
  int64_t row_stride, head_stride;
  SHIFTRON_INLINE T* at(int64_t row, int64_t head) const { return data + row * row_stride + head * head_stride; }
};
template <typename T>
View<const T> view(const ConstTensor& tensor) {
  if (!tensor.defined()) return {nullptr, 0, 0};
  return {tensor.data<T>(), tensor.stride(0), tensor.stride(1)};
}
template <typename T>
View<T> view(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.stride(0), tensor.stride(1)};
}

template <typename T>
struct Call {
  Call(const ConstTensor& in, const ShiftRope& how)
      : x(view<T>(in)), rows(in.extent(0)), heads(in.extent(1)), head_dim(in.extent(2)) {
    if (how.taps.defined()) {
      taps = how.taps.data<float>();
      tap_stride = how.taps.stride(0);
      count = how.taps.extent(1);
      shift_start = how.shift_start.data<int32_t>();
    }
    if (how.carried.defined()) {
      carried = view<T>(how.carried);
      carried_rows = how.carried.extent(0);
    }
    if (how.rope.defined()) {
      cosine = how.rope.data<float>();
      sine = cosine + how.rope.stride(0);
      rope_stride = how.rope.stride(1);
      positions = how.positions.data<int32_t>();
    }
  }
  // Factor of the row b rows before.
  SHIFTRON_INLINE float factor(int64_t head, int64_t b) const { return taps[head * tap_stride + count - 1 - b]; }
  SHIFTRON_INLINE const T* source(int64_t row, int64_t head) const {
    return row >= 0 ? x.at(row, head) : carried.at(carried_rows + row, head);
  }
  // How many rows, itself included, row t mixes in.
  SHIFTRON_INLINE int64_t sources(int64_t t) const {
    const int64_t first = std::max<int64_t>(shift_start[t], -carried_rows);
    return std::clamp<int64_t>(t - first + 1, 0, count);
  }
  // How many rows, itself included, row s is mixed into.
  SHIFTRON_INLINE int64_t receivers(int64_t s) const {
    int64_t reach = 0;
    while (reach < count && s + reach < rows && shift_start[s + reach] <= s) ++reach;
    return reach;
  }

  View<const T> x{}, carried{};
  int64_t rows, heads, head_dim, carried_rows = 0;
  const float* taps = nullptr;
  int64_t tap_stride = 0, count = 0;
  const int32_t* shift_start = nullptr;
  const float *cosine = nullptr, *sine = nullptr;
  int64_t rope_stride = 0;
  const int32_t* positions = nullptr;
};

template <int reach, typename T>
SHIFTRON_INLINE float mix(const T* const* from, const float* factors, int64_t d) {
  float z = factors[0] * to_accumulate(from[0][d]);
  if constexpr (reach > 1) z += factors[1] * to_accumulate(from[1][d]);
  if constexpr (reach > 2) z += factors[2] * to_accumulate(from[2][d]);
  if constexpr (reach > 3) z += factors[3] * to_accumulate(from[3][d]);
  return z;
}

// to = Σ_b factors[b] from[b], rotated when there is a cosine; direction −1 rotates back.
template <int reach, typename T, typename To>
SHIFTRON_INLINE void mix_row(const T* const* from, const float* factors, int64_t head_dim, const float* cosine,
                             const float* sine, float direction, To* to) {
  const T* const sources[kMaxTaps] = {from[0], from[1], from[2], from[3]};
  const float by[kMaxTaps] = {factors[0], factors[1], factors[2], factors[3]};
  if (cosine == nullptr) {
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) to[d] = round_to<To>(mix<reach>(sources, by, d));
    return;
  }
  const int64_t half = head_dim / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float first = mix<reach>(sources, by, i);
    const float second = mix<reach>(sources, by, half + i);
    const float s = direction * sine[i];
    to[i] = round_to<To>(first * cosine[i] - second * s);
    to[half + i] = round_to<To>(second * cosine[i] + first * s);
  }
}

template <typename T, typename To>
SHIFTRON_INLINE void mix_rows(int64_t reach, const T* const* from, const float* factors, int64_t head_dim,
                              const float* cosine, const float* sine, float direction, To* to) {
  switch (reach) {
    case 0:
      std::fill_n(to, head_dim, To{});
      return;
    case 1:
      mix_row<1>(from, factors, head_dim, cosine, sine, direction, to);
      return;
    case 2:
      mix_row<2>(from, factors, head_dim, cosine, sine, direction, to);
      return;
    case 3:
      mix_row<3>(from, factors, head_dim, cosine, sine, direction, to);
      return;
    default:
      mix_row<4>(from, factors, head_dim, cosine, sine, direction, to);
      return;
  }
}

// Rows [begin, end) of all heads. Without taps, direction −1 is the whole backward.
template <typename T>
SHIFTRON_INLINE void forward_rows(const Call<T>& call, int64_t begin, int64_t end, float direction, const View<T>& y) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t reach = call.count == 0 ? 1 : call.sources(t);
    const int64_t entry = call.cosine == nullptr ? 0 : call.positions[t] * call.rope_stride;
    const float* cosine = call.cosine == nullptr ? nullptr : call.cosine + entry;
    for (int64_t head = 0; head < call.heads; ++head) {
      const T* from[kMaxTaps] = {};
      float factors[kMaxTaps] = {1.0f};
      for (int64_t b = 0; b < reach; ++b) {
        from[b] = call.source(t - b, head);
        if (call.count > 0) factors[b] = call.factor(head, b);
      }
      mix_rows(reach, from, factors, call.head_dim, cosine, call.sine + entry, direction, y.at(t, head));
    }
  }
}

template <typename T>
SHIFTRON_INLINE void add_products(const float* g, const T* x, int64_t count, float* sums) {
#pragma omp simd
  for (int64_t d = 0; d < count; ++d) sums[d] += g[d] * to_accumulate(x[d]);
}

// Rows [begin, end) of the heads [first, last), from the last row to the first, so that g of the rows after is at hand.
template <typename T>
SHIFTRON_INLINE void backward_heads(const Call<T>& call, const View<const T>& d_y, int64_t begin, int64_t end,
                                    int64_t first, int64_t last, const View<T>& d_x, float* partial) {
  alignas(64) float g[kMaxTaps][kGroupWidth];     // of row t in g[t % kMaxTaps]
  alignas(64) float sums[kMaxTaps][kGroupWidth];  // products for d_c_b, by element of the heads
  const int64_t width = (last - first) * call.head_dim;
  const float one[kMaxTaps] = {1.0f};
  for (int64_t b = 0; b < call.count; ++b) std::fill_n(sums[b], width, 0.0f);
  for (int64_t t = std::min(call.rows, end + call.count - 1) - 1; t >= begin; --t) {
    const int64_t entry = call.cosine == nullptr ? 0 : call.positions[t] * call.rope_stride;
    const float* cosine = call.cosine == nullptr ? nullptr : call.cosine + entry;
    for (int64_t head = first; head < last; ++head) {
      const T* const in[kMaxTaps] = {d_y.at(t, head)};
      float* g_t = g[t % kMaxTaps] + (head - first) * call.head_dim;
      mix_row<1>(in, one, call.head_dim, cosine, call.sine + entry, -1.0f, g_t);
    }
    if (t >= end) continue;
    const int64_t reach = call.receivers(t);
    const int64_t sources = call.sources(t);
    for (int64_t head = first; head < last; ++head) {
      const int64_t place = (head - first) * call.head_dim;
      const float* after[kMaxTaps] = {};
      float factors[kMaxTaps] = {};
      for (int64_t b = 0; b < reach; ++b) {
        after[b] = g[(t + b) % kMaxTaps] + place;
        factors[b] = call.factor(head, b);
      }
      mix_rows(reach, after, factors, call.head_dim, nullptr, nullptr, 1.0f, d_x.at(t, head));
      for (int64_t b = 0; b < sources; ++b) {
        add_products(g[t % kMaxTaps] + place, call.source(t - b, head), call.head_dim, sums[b] + place);
      }
    }
  }
  for (int64_t head = first; head < last; ++head) {
    for (int64_t b = 0; b < call.count; ++b) {
      const float* products = sums[b] + (head - first) * call.head_dim;
      float total = 0.0f;
#pragma omp simd reduction(+ : total)
      for (int64_t d = 0; d < call.head_dim; ++d) total += products[d];
      partial[head * call.count + call.count - 1 - b] = total;
    }
  }
}

template <typename T>
SHIFTRON_INLINE void backward_rows(const Call<T>& call, const View<const T>& d_y, int64_t begin, int64_t end,
                                   const View<T>& d_x, float* partial) {
  const int64_t group = kGroupWidth / call.head_dim;
  for (int64_t first = 0; first < call.heads; first += group) {
    backward_heads(call, d_y, begin, end, first, std::min(call.heads, first + group), d_x, partial);
  }
}

SHIFTRON_CLONES void forward_block(const Call<float>& call, int64_t begin, int64_t end, float direction,
                                   const View<float>& y) {
  forward_rows(call, begin, end, direction, y);
}
SHIFTRON_CLONES void forward_block(const Call<bfloat16>& call, int64_t begin, int64_t end, float direction,
                                   const View<bfloat16>& y) {
  forward_rows(call, begin, end, direction, y);
}
SHIFTRON_CLONES void backward_block(const Call<float>& call, const View<const float>& d_y, int64_t begin, int64_t end,
                                    const View<float>& d_x, float* partial) {
  backward_rows(call, d_y, begin, end, d_x, partial);
}
SHIFTRON_CLONES void backward_block(const Call<bfloat16>& call, const View<const bfloat16>& d_y, int64_t begin,
                                    int64_t end, const View<bfloat16>& d_x, float* partial) {
  backward_rows(call, d_y, begin, end, d_x, partial);
}

template <typename T>
void forward(int threads, const ConstTensor& x, const ShiftRope& how, float direction, const Tensor& y) {
  const Call<T> call(x, how);
  const View<T> to = view<T>(y);
  parallel_blocks(threads, call.rows, kShiftRows,
                  [&](int64_t begin, int64_t end) { forward_block(call, begin, end, direction, to); });
}

template <typename T>
void backward(int threads, const ConstTensor& d_y, const ConstTensor& x, const ShiftRope& how, const Tensor& d_x,
              const Tensor& d_taps, float* partial) {
  const Call<T> call(x, how);
  const View<const T> from = view<T>(d_y);
  const View<T> to = view<T>(d_x);
  const int64_t factors = call.heads * call.count;
  parallel_blocks(threads, call.rows, kShiftRows, [&](int64_t begin, int64_t end) {
    backward_block(call, from, begin, end, to, partial + begin / kShiftRows * factors);
  });
  for (int64_t i = 0; i < factors; ++i) {
    float sum = 0.0f;
    for (int64_t block = 0; block < row_blocks(call.rows, kShiftRows); ++block) sum += partial[block * factors + i];
    d_taps.data<float>()[i / call.count * d_taps.stride(0) + i % call.count] += sum;
  }
}

bool is_usual(const ConstTensor& x, const ShiftRope& how) {
  return x.extent(2) <= kGroupWidth && (!how.taps.defined() || how.taps.extent(1) <= kMaxTaps);
}

}  // namespace

void shift_rope_forward(Stream& stream, ConstTensor x, const ShiftRope& how, Tensor y) {
  if (!is_usual(x, how)) return specification::shift_rope_forward(stream, x, how, y);
  if (x.dtype() == DType::float32)
    forward<float>(stream.threads, x, how, 1.0f, y);
  else
    forward<bfloat16>(stream.threads, x, how, 1.0f, y);
}

void shift_rope_backward(Stream& stream, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x,
                         Tensor d_taps, Tensor scratch) {
  if (!is_usual(x, how)) return specification::shift_rope_backward(stream, d_y, x, how, d_x, d_taps, scratch);
  const bool wide = x.dtype() == DType::float32;
  if (!how.taps.defined()) {
    if (wide)
      forward<float>(stream.threads, d_y, how, -1.0f, d_x);
    else
      forward<bfloat16>(stream.threads, d_y, how, -1.0f, d_x);
  } else if (wide) {
    backward<float>(stream.threads, d_y, x, how, d_x, d_taps, scratch.data<float>());
  } else {
    backward<bfloat16>(stream.threads, d_y, x, how, d_x, d_taps, scratch.data<float>());
  }
}

}  // namespace shiftron::fast
