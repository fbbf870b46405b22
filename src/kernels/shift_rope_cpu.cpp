// KV shift (paper, equations 8 and 9) fused with rotary positions on the CPU, one pass over memory in each direction.
// Forward: z_t = Σ_b c_b x_{t−b} over the rows that t may mix in, y = rotation of z by its position.
// Backward: g = inverse rotation of d_y, d_x_s = Σ_b c_b g_{s+b}, d_c_b = Σ g_t x_{t−b} in partial sums of kShiftRows
// rows.
#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"
#include "kernels/row_blocks.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kMaxTaps = 4;
constexpr int64_t kGroupWidth = 1024;  // elements of a row at a time; wider heads use the reference implementation

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
  // Factor of the row b rows earlier.
  SHIFTRON_INLINE float factor(int64_t head, int64_t b) const { return taps[head * tap_stride + count - 1 - b]; }
  SHIFTRON_INLINE const T* source(int64_t row, int64_t head) const {
    return row >= 0 ? x.at(row, head) : carried.at(carried_rows + row, head);
  }
  // How many rows row t mixes in, including itself.
  SHIFTRON_INLINE int64_t sources(int64_t t) const {
    const int64_t first = std::max<int64_t>(shift_start[t], -carried_rows);
    return std::clamp<int64_t>(t - first + 1, 0, count);
  }
  // Into how many rows row s is mixed, including itself.
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

// Rows of a fused projection are in different pages, and processors prefetch only within a page.
constexpr int64_t kRowsAhead = 48;

template <typename T>
SHIFTRON_INLINE void prefetch_row(const T* row, int64_t width, bool for_writing) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t d = 0; d < width; d += kLine) {
    if (for_writing)
      prefetch_to_write(row + d);
    else
      __builtin_prefetch(row + d, 0);
  }
}

// Rows [begin, end) of all heads. Without taps, direction −1 is the whole backward.
template <typename T>
SHIFTRON_INLINE void forward_rows(const Call<T>& call, int64_t begin, int64_t end, float direction, const View<T>& y) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t reach = call.count == 0 ? 1 : call.sources(t);
    const int64_t entry = call.cosine == nullptr ? 0 : call.positions[t] * call.rope_stride;
    const float* cosine = call.cosine == nullptr ? nullptr : call.cosine + entry;
    const int64_t ahead = std::min(t + kRowsAhead, call.rows - 1);
    for (int64_t head = 0; head < call.heads; ++head) {
      prefetch_row(call.x.at(ahead, head), call.head_dim, false);
      prefetch_row(y.at(ahead, head), call.head_dim, true);
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

// What backward reads and writes at row t of one head: g of row t, products of row t, and d_x of row
// s = t − (taps − 1), to which g of row t is the last contribution. Rows that do not exist read as zeros, and writes to
// them go to a dummy buffer.
template <typename T>
struct BackwardRow {
  const T* d_y;
  const T* x[kMaxTaps];         // of row t − b
  const float* g_of[kMaxTaps];  // of row s + b, b < taps − 1
  float factors[kMaxTaps];      // of g of row s + b
  const float *cosine, *sine;   // null: no rotation
  float* g;
  T* d_x;
};

// Adds the products of the row to sums[taps − 1 − b], the gradients of the taps.
template <int taps, typename T>
SHIFTRON_INLINE void backward_row(const BackwardRow<T>& row, int64_t head_dim, float* sums) {
  const T *const d_y = row.d_y, *const x0 = row.x[0], *const x1 = row.x[1], *const x2 = row.x[2], *const x3 = row.x[3];
  const float *const g0 = row.g_of[0], *const g1 = row.g_of[1], *const g2 = row.g_of[2];
  const float by0 = row.factors[0], by1 = row.factors[1], by2 = row.factors[2], by3 = row.factors[3];
  float* const g_out = row.g;
  T* const d_x = row.d_x;
  const auto at = [](const T* x, int64_t d) __attribute__((always_inline)) {
    return to_accumulate(x[d]);
  };
  const auto finish = [&](int64_t d, float g) __attribute__((always_inline)) {
    float z = by0 * (taps > 1 ? g0[d] : g);
    if constexpr (taps > 1) z += by1 * (taps > 2 ? g1[d] : g);
    if constexpr (taps > 2) z += by2 * (taps > 3 ? g2[d] : g);
    if constexpr (taps > 3) z += by3 * g;
    d_x[d] = round_to<T>(z);
    g_out[d] = g;
  };
  float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
  if (row.cosine == nullptr) {
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
    for (int64_t d = 0; d < head_dim; ++d) {
      const float g = at(d_y, d);
      sum0 += g * at(x0, d);
      if constexpr (taps > 1) sum1 += g * at(x1, d);
      if constexpr (taps > 2) sum2 += g * at(x2, d);
      if constexpr (taps > 3) sum3 += g * at(x3, d);
      finish(d, g);
    }
  } else {
    const int64_t half = head_dim / 2;
    const float *const cosine = row.cosine, *const sine = row.sine;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
    for (int64_t i = 0; i < half; ++i) {
      const int64_t k = half + i;
      const float g = at(d_y, i) * cosine[i] + at(d_y, k) * sine[i];
      const float h = at(d_y, k) * cosine[i] - at(d_y, i) * sine[i];
      sum0 += g * at(x0, i) + h * at(x0, k);
      if constexpr (taps > 1) sum1 += g * at(x1, i) + h * at(x1, k);
      if constexpr (taps > 2) sum2 += g * at(x2, i) + h * at(x2, k);
      if constexpr (taps > 3) sum3 += g * at(x3, i) + h * at(x3, k);
      finish(i, g);
      finish(k, h);
    }
  }
  const float all[kMaxTaps] = {sum0, sum1, sum2, sum3};
  for (int b = 0; b < taps; ++b) sums[taps - 1 - b] += all[b];
}

// Rows [begin, end) of the heads [first, last).
template <int taps, typename T>
SHIFTRON_INLINE void backward_heads(const Call<T>& call, const View<const T>& d_y, int64_t begin, int64_t end,
                                    int64_t first, int64_t last, const View<T>& d_x, float* partial) {
  alignas(64) static constexpr float kZeros[kGroupWidth] = {};
  alignas(64) float g[kMaxTaps][kGroupWidth];  // of row t in g[t % kMaxTaps]
  alignas(64) T nowhere[kGroupWidth];
  const T* const zeros = reinterpret_cast<const T*>(kZeros);
  std::fill_n(partial + first * taps, (last - first) * taps, 0.0f);
  for (int64_t t = begin; t < end + taps - 1; ++t) {
    const int64_t s = t - (taps - 1);
    const int64_t sources = t < end ? call.sources(t) : 0, receivers = s >= begin ? call.receivers(s) : 0;
    const int64_t entry = call.cosine == nullptr || t >= call.rows ? 0 : call.positions[t] * call.rope_stride;
    const int64_t ahead = std::min(t + kRowsAhead, call.rows - 1);
    for (int64_t head = first; head < last; ++head) {
      prefetch_row(call.x.at(ahead, head), call.head_dim, false);
      prefetch_row(d_x.at(ahead, head), call.head_dim, true);
      const int64_t place = (head - first) * call.head_dim;
      BackwardRow<T> row{.d_y = t < call.rows ? d_y.at(t, head) : zeros,
                         .x = {},
                         .g_of = {},
                         .factors = {},
                         .cosine = call.cosine == nullptr ? nullptr : call.cosine + entry,
                         .sine = call.sine + entry,
                         .g = g[t % kMaxTaps] + place,
                         .d_x = s >= begin ? d_x.at(s, head) : nowhere};
      for (int b = 0; b < taps; ++b) {
        row.x[b] = b < sources ? call.source(t - b, head) : zeros;
        row.g_of[b] = b < receivers ? g[(s + b) % kMaxTaps] + place : kZeros;
        row.factors[b] = b < receivers ? call.factor(head, b) : 0.0f;
      }
      backward_row<taps>(row, call.head_dim, partial + head * taps);
    }
  }
}

template <typename T>
SHIFTRON_INLINE void backward_rows(const Call<T>& call, const View<const T>& d_y, int64_t begin, int64_t end,
                                   const View<T>& d_x, float* partial) {
  const int64_t group = kGroupWidth / call.head_dim;
  for (int64_t first = 0; first < call.heads; first += group) {
    const int64_t last = std::min(call.heads, first + group);
    switch (call.count) {
      case 1:
        backward_heads<1>(call, d_y, begin, end, first, last, d_x, partial);
        break;
      case 2:
        backward_heads<2>(call, d_y, begin, end, first, last, d_x, partial);
        break;
      case 3:
        backward_heads<3>(call, d_y, begin, end, first, last, d_x, partial);
        break;
      default:
        backward_heads<4>(call, d_y, begin, end, first, last, d_x, partial);
        break;
    }
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

void shift_rope_forward(const CpuOptions& cpu, const std::vector<ShiftForward>& streams) {
  for (const ShiftForward& stream : streams) {
    const auto& [x, how, y] = stream;
    if (!is_usual(x, how))
      specification::shift_rope_forward(cpu, {stream});
    else if (x.dtype() == DType::float32)
      forward<float>(cpu.threads, x, how, 1.0f, y);
    else
      forward<bfloat16>(cpu.threads, x, how, 1.0f, y);
  }
}

void shift_rope_backward(const CpuOptions& cpu, const std::vector<ShiftBackward>& streams, Tensor scratch) {
  for (const ShiftBackward& stream : streams) {
    const auto& [d_y, x, how, d_x, d_taps] = stream;
    const bool wide = x.dtype() == DType::float32;
    if (!is_usual(x, how)) {
      specification::shift_rope_backward(cpu, {stream}, scratch);
    } else if (!how.taps.defined()) {
      if (wide)
        forward<float>(cpu.threads, d_y, how, -1.0f, d_x);
      else
        forward<bfloat16>(cpu.threads, d_y, how, -1.0f, d_x);
    } else if (wide) {
      backward<float>(cpu.threads, d_y, x, how, d_x, d_taps, scratch.data<float>());
    } else {
      backward<bfloat16>(cpu.threads, d_y, x, how, d_x, d_taps, scratch.data<float>());
    }
  }
}

}  // namespace shiftron::fast
