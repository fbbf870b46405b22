// KV shift (paper, equations 8 and 9) fused with rotary positions in CUDA. A thread has the neighbours of one head and
// row that one access reads and, where rows are rotated, their partners in the other half.
#include "kernels/bodies.h"
#include "kernels/device_cuda.h"
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

// A tensor [rows, heads, head_dim].
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t row_stride = 0, head_stride = 0;
  __device__ T* at(int64_t row, int64_t head) const { return data + row * row_stride + head * head_stride; }
};
template <typename T>
HeadRows<const T> head_rows(const ConstTensor& tensor) {
  if (!tensor.defined()) return {};
  return {device_data<T>(tensor), tensor.stride(0), tensor.stride(1)};
}
template <typename T>
HeadRows<T> head_rows(const Tensor& tensor) {
  return {device_data<T>(tensor), tensor.stride(0), tensor.stride(1)};
}

// What all directions know of x and of the ShiftRope.
struct Call {
  Call(const ConstTensor& x, const ShiftRope& how)
      : rows(x.extent(0)), heads(x.extent(1)), head_dim(x.extent(2)), half(head_dim / 2) {
    if (how.taps.defined()) {
      taps = how.taps.data<float>();
      tap_stride = how.taps.stride(0);
      count = how.taps.extent(1);
      shift_start = how.shift_start.data<int32_t>();
    }
    if (how.carried.defined()) carried_rows = how.carried.extent(0);
    if (how.rope.defined()) {
      cosine = how.rope.data<float>();
      sine = cosine + how.rope.stride(0);
      rope_stride = how.rope.stride(1);
      positions = how.positions.data<int32_t>();
    }
  }
  // Factor of the row b rows before.
  __device__ float factor(int64_t head, int64_t b) const {
    return taps == nullptr ? 1.0f : taps[head * tap_stride + count - 1 - b];
  }
  __device__ bool mixes(int64_t t, int64_t row) const {
    return taps == nullptr || (row >= -carried_rows && row >= shift_start[t]);
  }

  int64_t rows, heads, head_dim, half;
  const float* taps = nullptr;
  int64_t tap_stride = 0, count = 1;
  const int32_t* shift_start = nullptr;
  int64_t carried_rows = 0;
  const float *cosine = nullptr, *sine = nullptr;
  int64_t rope_stride = 0;
  const int32_t* positions = nullptr;
};

// The elements of one thread: kWidth neighbours from `first` on, of kParts halves.
template <int kWidth, int kParts>
struct Values {
  float part[kParts][kWidth] = {};
};

template <int kWidth, int kParts, typename T>
__device__ Values<kWidth, kParts> load_values(const T* row, int64_t first, int64_t half) {
  Values<kWidth, kParts> result;
  for (int part = 0; part < kParts; ++part) {
    const Elements<T, kWidth> loaded = load_elements<kWidth>(row + first + part * half);
    for (int i = 0; i < kWidth; ++i) result.part[part][i] = to_float(loaded[i]);
  }
  return result;
}

template <typename T, int kWidth, int kParts>
__device__ void store_values(T* row, int64_t first, int64_t half, const Values<kWidth, kParts>& values) {
  for (int part = 0; part < kParts; ++part) {
    Elements<T, kWidth> stored;
    for (int i = 0; i < kWidth; ++i) stored[i] = from_float<T>(values.part[part][i]);
    store_elements<kWidth>(row + first + part * half, stored);
  }
}

template <int kWidth, int kParts>
__device__ void add_product(Values<kWidth, kParts>& sum, float factor, const Values<kWidth, kParts>& values) {
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kWidth; ++i) sum.part[part][i] += factor * values.part[part][i];
  }
}

template <int kWidth, int kParts>
__device__ float dot(const Values<kWidth, kParts>& a, const Values<kWidth, kParts>& b) {
  float sum = 0.0f;
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kWidth; ++i) sum += a.part[part][i] * b.part[part][i];
  }
  return sum;
}

// By the position of row t where there are halves to rotate; direction −1 rotates back.
template <int kWidth, int kParts>
__device__ Values<kWidth, kParts> rotated(const Call& call, int64_t t, int64_t first, float direction,
                                          const Values<kWidth, kParts>& z) {
  if constexpr (kParts == 1) {
    return z;
  } else {
    const int64_t entry = call.positions[t] * call.rope_stride + first;
    const Elements<float, kWidth> cosine = load_elements<kWidth>(call.cosine + entry);
    const Elements<float, kWidth> sine = load_elements<kWidth>(call.sine + entry);
    Values<kWidth, kParts> y;
    for (int i = 0; i < kWidth; ++i) {
      const float c = cosine[i], s = direction * sine[i];
      y.part[0][i] = z.part[0][i] * c - z.part[1][i] * s;
      y.part[1][i] = z.part[1][i] * c + z.part[0][i] * s;
    }
    return y;
  }
}

// One thread for all that it has of one row. Without taps, direction −1 is the whole backward.
template <typename T, int kWidth, int kParts>
__global__ void __launch_bounds__(kBlockThreads)
    shift_rope_kernel(Call call, HeadRows<const T> x, HeadRows<const T> carried, float direction, HeadRows<T> y) {
  const int64_t pieces = call.head_dim / (kParts * kWidth);  // of a row of one head
  const int64_t index = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  const int64_t t = index / (call.heads * pieces);
  if (t < call.rows) {
    const int64_t head = index / pieces % call.heads;
    const int64_t first = index % pieces * kWidth;
    Values<kWidth, kParts> z;
    for (int64_t b = call.count - 1; b >= 0; --b) {
      const int64_t row = t - b;
      if (!call.mixes(t, row)) continue;
      const T* from = row >= 0 ? x.at(row, head) : carried.at(call.carried_rows + row, head);
      add_product(z, call.factor(head, b), load_values<kWidth, kParts>(from, first, call.half));
    }
    store_values(y.at(t, head), first, call.half, rotated(call, t, first, direction, z));
  }
}

// Taps whose gradients are summed at once.
constexpr int kTapGroup = 4;

// Block (run, head): d_x of the run's rows s, and Σ g_{s+b} x_s over them for each tap into partial [runs, heads,
// count]. The rows behind a run are read by its block too.
template <typename T, int kWidth, int kParts>
__global__ void __launch_bounds__(kBlockThreads)
    shift_rope_backward_kernel(Call call, HeadRows<const T> d_y, HeadRows<const T> x, HeadRows<T> d_x, float* partial) {
  const int64_t head = blockIdx.y;
  const int64_t begin = int64_t{blockIdx.x} * kShiftRun;
  const int pieces = static_cast<int>(call.head_dim) / (kParts * kWidth);
  const int run = static_cast<int>(call.rows - begin < kShiftRun ? call.rows - begin : kShiftRun);
  float* const out = partial + (blockIdx.x * call.heads + head) * call.count;
  for (int64_t group = 0; group < call.count; group += kTapGroup) {
    float sums[kTapGroup] = {};
    for (int index = static_cast<int>(threadIdx.x); index < run * pieces; index += kBlockThreads) {
      const int64_t s = begin + index / pieces;
      const int64_t first = index % pieces * kWidth;
      const Values<kWidth, kParts> of_x = load_values<kWidth, kParts>(x.at(s, head), first, call.half);
      Values<kWidth, kParts> z;
      for (int64_t b = call.count - 1; b >= 0; --b) {
        const int64_t t = s + b;
        if (t >= call.rows || !call.mixes(t, s)) continue;
        const Values<kWidth, kParts> g =
            rotated(call, t, first, -1.0f, load_values<kWidth, kParts>(d_y.at(t, head), first, call.half));
        add_product(z, call.factor(head, b), g);
        const float product = dot(g, of_x);
        for (int i = 0; i < kTapGroup; ++i) sums[i] += group + i == b ? product : 0.0f;
      }
      if (group == 0) store_values(d_x.at(s, head), first, call.half, z);
    }
    for (int i = 0; i < kTapGroup; ++i) {
      const float sum = block_sum(sums[i]);
      if (threadIdx.x == 0 && group + i < call.count) out[call.count - 1 - group - i] = sum;
    }
  }
}

// d_taps += partial [runs, heads, count], summed by a warp for each tap.
__global__ void __launch_bounds__(kWarp)
    sum_taps_kernel(const float* partial, int64_t runs, int64_t taps, int64_t count, float* d_taps, int64_t stride) {
  const int64_t tap = blockIdx.x;
  float sum = 0.0f;
  for (int64_t run = threadIdx.x; run < runs; run += kWarp) sum += partial[run * taps + tap];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) d_taps[tap / count * stride + tap % count] += sum;
}

// Whether packs fit, in halves too where these are rotated.
bool rows_in_packs(const ShiftRope& how, std::initializer_list<ConstTensor> rows) {
  if (!in_packs(rows)) return false;
  if (!how.rope.defined()) return true;
  const ConstTensor& first = *rows.begin();
  return in_packs({how.rope}) && first.extent(2) / 2 % (16 / size_of(first.dtype())) == 0;
}

// body(T{}, Constant<width>{}, Constant<parts>{}).
template <typename Body>
void for_shift_kernel(const char* name, DType dtype, bool packed, bool rotates, Body&& body) {
  for_device_type(name, dtype, packed, [&](auto element, auto width) {
    if (rotates) {
      body(element, width, Constant<2>{});
    } else {
      body(element, width, Constant<1>{});
    }
  });
}

void launch_shift_rope(const char* name, const CudaContext& context, const ConstTensor& x, const ShiftRope& how,
                       float direction, const Tensor& y) {
  const bool packed = rows_in_packs(how, {x, how.carried, y});
  for_shift_kernel(name, x.dtype(), packed, how.rope.defined(), [&](auto element, auto width, auto parts) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value, kParts = decltype(parts)::value;
    const int64_t threads = x.count() / (kWidth * kParts);
    launch_kernel(name, shift_rope_kernel<T, kWidth, kParts>, grid_for(threads), kBlockThreads, context.stream,
                  Call(x, how), head_rows<T>(x), head_rows<T>(how.carried), direction, head_rows<T>(y));
  });
}

}  // namespace

void shift_rope_forward(const CudaContext& context, ConstTensor x, const ShiftRope& how, Tensor y) {
  launch_shift_rope("shift_rope_forward", context, x, how, 1.0f, y);
}

void shift_rope_backward(const CudaContext& context, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x,
                         Tensor d_taps, Tensor scratch) {
  constexpr const char* kName = "shift_rope_backward";
  if (!how.taps.defined()) return launch_shift_rope(kName, context, d_y, how, -1.0f, d_x);
  const int64_t heads = x.extent(1), count = how.taps.extent(1);
  const int64_t runs = (x.extent(0) + kShiftRun - 1) / kShiftRun;
  const bool packed = rows_in_packs(how, {d_y, x, d_x});
  for_shift_kernel(kName, x.dtype(), packed, how.rope.defined(), [&](auto element, auto width, auto parts) {
    using T = decltype(element);
    launch_kernel(kName, shift_rope_backward_kernel<T, decltype(width)::value, decltype(parts)::value>, {runs, heads},
                  kBlockThreads, context.stream, Call(x, how), head_rows<T>(d_y), head_rows<T>(x), head_rows<T>(d_x),
                  scratch.data<float>());
  });
  launch_kernel("shift_rope_backward: taps", sum_taps_kernel, {heads * count}, kWarp, context.stream,
                scratch.data<float>(), runs, heads * count, count, d_taps.data<float>(), d_taps.stride(0));
}

}  // namespace shiftron::cuda
