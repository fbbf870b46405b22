// RMS norm in CUDA. Rows in packs are kept in registers: a group of warps of a block handles a row, which is read once.
// Rows of other widths are read twice, by one block each. For the gradient, as many blocks as the scratch has rows go
// through all rows, each with its own partial sums of d_w; a second kernel adds those in order.
#include "kernels/bodies.h"
#include "kernels/device_cuda.h"
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

// Blocks per multiprocessor at the same time; with fewer registers per thread, loads would wait for each other.
template <int kColumns>
constexpr int kForwardBlocks = kColumns > 24 ? 3 : 4;
constexpr int kBackwardBlocks = 2;

constexpr int kWarps = kBlockThreads / kWarp;
constexpr int kMostPacks = 4;  // of a row, per lane
constexpr int kSumWarps = 32;  // per block that adds partial sums of kWarp columns

template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ T* operator[](int64_t row) const { return data + row * stride; }
};
template <typename T>
Rows<T> rows_of(const Tensor& tensor) {
  return {device_data<T>(tensor), tensor.stride(0)};
}
template <typename T>
Rows<const T> rows_of(const ConstTensor& tensor) {
  return {device_data<T>(tensor), tensor.stride(0)};
}

template <typename T, int kCount>
__device__ Elements<T, kCount> sum_of(const Elements<T, kCount>& a, const Elements<T, kCount>& b) {
  Elements<T, kCount> sum;
  for (int i = 0; i < kCount; ++i) sum[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
  return sum;
}
template <typename T, int kCount>
__device__ float squares_of(const Elements<T, kCount>& values) {
  float squares = 0.0f;
  for (int i = 0; i < kCount; ++i) squares += to_float(values[i]) * to_float(values[i]);
  return squares;
}
__device__ inline float inverse_of(float squares, int64_t hidden, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(hidden) + epsilon);
}
template <typename T, int kCount>
__device__ Elements<T, kCount> normal_of(const Elements<T, kCount>& values, const Elements<float, kCount>& scales,
                                         float r) {
  Elements<T, kCount> normal;
  for (int i = 0; i < kCount; ++i) normal[i] = from_float<T>(to_float(values[i]) * r * scales[i]);
  return normal;
}

template <typename T, int kCount>
__device__ float products_of(const Elements<T, kCount>& d, const Elements<T, kCount>& values,
                             const Elements<float, kCount>& scales) {
  float products = 0.0f;
  for (int i = 0; i < kCount; ++i) products += scales[i] * to_float(d[i]) * to_float(values[i]);
  return products;
}
template <typename T, int kCount>
__device__ void add_to_sums(const Elements<T, kCount>& d, const Elements<T, kCount>& values, float r,
                            Elements<float, kCount>& sums) {
  for (int i = 0; i < kCount; ++i) sums[i] += to_float(d[i]) * to_float(values[i]) * r;
}
// d_values plus the gradient, without the gradient's part along the row, which needs the sum of the products.
template <typename T, int kCount>
__device__ Elements<float, kCount> with_scaled(const Elements<T, kCount>& d_values, const Elements<T, kCount>& d,
                                               const Elements<float, kCount>& scales, float r) {
  Elements<float, kCount> sum;
  for (int i = 0; i < kCount; ++i) sum[i] = to_float(d_values[i]) + r * (scales[i] * to_float(d[i]));
  return sum;
}
__device__ inline float along_of(float products, float r, int64_t hidden) {
  return r * r * (products / static_cast<float>(hidden)) * r;
}
template <typename T, int kCount>
__device__ Elements<T, kCount> without_along(const Elements<float, kCount>& sum, const Elements<T, kCount>& values,
                                             float along) {
  Elements<T, kCount> d_values;
  for (int i = 0; i < kCount; ++i) d_values[i] = from_float<T>(sum[i] - to_float(values[i]) * along);
  return d_values;
}

// A thread's place: its group of warps, which has one row, and its columns of that row: packs of kPack, kWarp packs
// apart, before `end`.
template <int kPack, int kColumns>
struct Lane {
  int group;
  int64_t first;
  int64_t end = 0;

  __device__ explicit Lane(int group_warps) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
    group = warp / group_warps;
    first = int64_t{warp % group_warps} * kWarp * kColumns + thread % kWarp * kPack;
  }
  // Zeros where there is no such column.
  template <typename T>
  __device__ Elements<T, kColumns> load(const T* row) const {
    Words<T, kPack> packs[kColumns / kPack];
    for (int i = 0; i < kColumns / kPack; ++i) {
      const int64_t column = first + i * kPack * kWarp;
      if (column < end) packs[i] = {row + column, true};
    }
    Elements<T, kColumns> part;
    memcpy(part.values, packs, sizeof(packs));
    return part;
  }
  template <bool kInBlock = false, typename T>
  __device__ void store(T* row, const Elements<T, kColumns>& part) const {
    for (int i = 0; i < kColumns; i += kPack) {
      Elements<T, kPack> pack;
      for (int j = 0; j < kPack; ++j) pack[j] = part[i + j];
      if (first + i * kWarp >= end) continue;
      if constexpr (kInBlock) {
        store_in_block(row + first + i * kWarp, pack);
      } else {
        store_elements(row + first + i * kWarp, pack);
      }
    }
  }
};

// Sums over each group of warps in a fixed order; all threads of the group get the result. `turn` alternates between 0
// and 1, because the previous results may still be read.
__device__ inline float group_sum(float value, int group_warps, int turn) {
  SHARED_ARRAY(float, results, [2][kWarps]);
  const float of_warp = warp_sum(value);
  if (group_warps == 1) return of_warp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) results[turn][warp] = of_warp;
  __syncthreads();
  const float* const of_group = results[turn] + warp / group_warps * group_warps;
  float sum = of_group[0];
  for (int i = 1; i < kWarps; ++i) {
    if (i < group_warps) sum += of_group[i];
  }
  return sum;
}

// y = x r w for rows x of `in` or, if kAdds, of in + sum, which is stored in `sum`.
// in, sum, y [rows, hidden], w [hidden], inverse_rms [rows]
template <typename T, int kColumns, bool kAdds>
__global__ void __launch_bounds__(kBlockThreads, kForwardBlocks<kColumns>)
    normalise(Rows<const T> in, Rows<T> sum, const float* w, int64_t rows, int64_t hidden, int group_warps,
              float epsilon, Rows<T> y, float* inverse_rms) {
  await_earlier_kernels();
  Lane<kPackOf<T>, kColumns> lane(group_warps);
  const int64_t row = int64_t{blockIdx.x} * (kWarps / group_warps) + lane.group;
  lane.end = row < rows ? hidden : 0;
  auto values = lane.load(in[row]);
  if constexpr (kAdds) {
    values = sum_of(values, lane.load(sum[row]));
    lane.store(sum[row], values);
  }
  const float r = inverse_of(group_sum(squares_of(values), group_warps, 0), hidden, epsilon);
  if (lane.first == 0 && row < rows) inverse_rms[row] = r;
  lane.store(y[row], normal_of(values, lane.load(w), r));
}

// The same for rows of any width. A thread only rereads what it wrote itself.
template <typename T, int kWidth, bool kAdds>
__global__ void __launch_bounds__(kBlockThreads)
    normalise_any(Rows<const T> in, Rows<T> sum, const float* w, int64_t hidden, float epsilon, Rows<T> y,
                  float* inverse_rms) {
  await_earlier_kernels();
  constexpr int64_t kStep = int64_t{kBlockThreads} * kWidth;
  const int64_t begin = int64_t{threadIdx.x} * kWidth, row = blockIdx.x;
  float squares = 0.0f;
  for (int64_t j = begin; j < hidden; j += kStep) {
    auto values = load_elements<kWidth>(in[row] + j);
    if constexpr (kAdds) {
      values = sum_of(values, load_elements<kWidth>(sum[row] + j));
      store_elements(sum[row] + j, values);
    }
    squares += squares_of(values);
  }
  const float r = inverse_of(block_sum(squares), hidden, epsilon);
  if (threadIdx.x == 0) inverse_rms[row] = r;
  const T* const normed = kAdds ? sum[row] : in[row];
  for (int64_t j = begin; j < hidden; j += kStep) {
    store_elements(y[row] + j, normal_of(load_elements<kWidth>(normed + j), load_elements<kWidth>(w + j), r));
  }
}

template <typename T>
struct GradientRows {
  Rows<const T> d_y, x;
  Rows<T> d_x;
};

// d_y, x, d_x [rows, hidden], w [hidden], inverse_rms [rows], partial [blocks, hidden]; blocks ≤ rows.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kBlockThreads, kBackwardBlocks)
    gradients(GradientRows<T> at, const float* w, const float* inverse_rms, int64_t rows, int64_t hidden,
              int group_warps, float* partial) {
  await_earlier_kernels();
  SHARED_ARRAY(float, of_groups, [kBlockThreads * kColumns]);
  const int groups = kWarps / group_warps;
  Lane<kPackOf<T>, kColumns> lane(group_warps);
  Elements<float, kColumns> sums{};
  int turn = 0;
  // All groups iterate as often as the first, which has the most rows.
  for (int64_t first = blockIdx.x; first < rows; first += int64_t{gridDim.x} * groups) {
    const int64_t row = first + int64_t{gridDim.x} * lane.group;
    lane.end = row < rows ? hidden : 0;
    const auto d = lane.load(at.d_y[row]), values = lane.load(at.x[row]), d_values = lane.load(at.d_x[row]);
    __syncwarp();  // otherwise nvcc puts loads of w first, and the row's loads wait for registers
    const auto scales = lane.load(w);
    const float r = row < rows ? inverse_rms[row] : 0.0f;
    add_to_sums(d, values, r, sums);
    const auto sum = with_scaled(d_values, d, scales, r);
    const float products = group_sum(products_of(d, values, scales), group_warps, turn);
    lane.store(at.d_x[row], without_along(sum, values, along_of(products, r, hidden)));
    turn ^= 1;
  }
  lane.end = hidden;
  lane.template store<true>(of_groups + lane.group * hidden, sums);
  __syncthreads();
  for (int64_t j = threadIdx.x; j < hidden; j += kBlockThreads) {
    float sum = of_groups[j];
    for (int i = 1; i < kWarps; ++i) {
      if (i < groups) sum += of_groups[i * hidden + j];
    }
    partial[blockIdx.x * hidden + j] = sum;
  }
}

// The same for rows of any width.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads, kBackwardBlocks)
    gradients_any(GradientRows<T> at, const float* w, const float* inverse_rms, int64_t rows, int64_t hidden,
                  float* partial) {
  await_earlier_kernels();
  constexpr int64_t kStep = int64_t{kBlockThreads} * kWidth;
  const int64_t begin = int64_t{threadIdx.x} * kWidth;
  float* const own = partial + blockIdx.x * hidden;  // a thread sums its own columns
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float products = 0.0f;
    for (int64_t j = begin; j < hidden; j += kStep) {
      products += products_of(load_elements<kWidth>(at.d_y[row] + j), load_elements<kWidth>(at.x[row] + j),
                              load_elements<kWidth>(w + j));
    }
    const float r = inverse_rms[row];
    const float along = along_of(block_sum(products), r, hidden);
    for (int64_t j = begin; j < hidden; j += kStep) {
      const auto d = load_elements<kWidth>(at.d_y[row] + j), values = load_elements<kWidth>(at.x[row] + j);
      auto sums = row == blockIdx.x ? Elements<float, kWidth>{} : load_elements<kWidth>(own + j);
      add_to_sums(d, values, r, sums);
      store_elements(own + j, sums);
      T* const d_values = at.d_x[row] + j;
      const auto sum = with_scaled(load_elements<kWidth>(d_values), d, load_elements<kWidth>(w + j), r);
      store_elements(d_values, without_along(sum, values, along));
    }
  }
}

// partial [count, hidden], d_w [hidden]. Each warp of a block sums a share of the rows.
__global__ void __launch_bounds__(kSumWarps* kWarp)
    add_partial_sums(const float* partial, int64_t count, int64_t hidden, float* d_w) {
  await_earlier_kernels();
  SHARED_ARRAY(float, of_warps, [kSumWarps][kWarp]);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  const int64_t end = column < hidden ? (warp + 1) * count / kSumWarps : 0;
  float sum = 0.0f;
  for (int64_t i = warp * count / kSumWarps; i < end; ++i) sum += partial[i * hidden + column];
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= hidden) return;
  for (int i = 1; i < kSumWarps; ++i) sum += of_warps[i][lane];
  d_w[column] += sum;
}

// kept(T{}, Constant<columns>{}, group_warps) if rows can be kept in packs, with that many columns per lane; any(T{},
// Constant<width>{}) if rows are not in packs or are too wide.
template <typename Kept, typename Any>
void for_rows(const char* name, DType dtype, bool packed, int64_t hidden, const Kept& kept, const Any& any) {
  for_device_type(name, dtype, packed, [&](auto element, auto width) {
    constexpr int kWidth = width.value;
    if constexpr (kWidth > 1) {
      int warps = 1;
      while (warps < kWarps && hidden > int64_t{kMostPacks} * kWidth * kWarp * warps) warps *= 2;
      const int64_t of_packs = int64_t{kWidth} * kWarp * warps;
      switch ((hidden + of_packs - 1) / of_packs) {
        case 1:
          return kept(element, Constant<kWidth>{}, warps);
        case 2:
          return kept(element, Constant<2 * kWidth>{}, warps);
        case 3:
          return kept(element, Constant<3 * kWidth>{}, warps);
        case kMostPacks:
          return kept(element, Constant<kMostPacks * kWidth>{}, warps);
      }
    }
    any(element, width);
  });
}

// Normalises `in` or, if kAdds, in + sum.
template <bool kAdds>
void launch_normalise(const char* name, const CudaContext& context, ConstTensor in, Tensor sum, ConstTensor w,
                      double epsilon, Tensor y, Tensor inverse_rms) {
  const int64_t rows = in.extent(0), hidden = in.extent(1);
  const auto* const scales = device_data<float>(w);
  auto* const inverse = device_data<float>(inverse_rms);
  const auto of_sum = [&](auto element) {
    if constexpr (kAdds) return rows_of<decltype(element)>(sum);
    return Rows<decltype(element)>{};
  };
  for_rows(
      name, in.dtype(), in_packs({in, sum, w, y}), hidden,
      [&](auto element, auto columns, int group_warps) {
        using T = decltype(element);
        const int groups = kWarps / group_warps;
        launch_kernel(name, normalise<T, columns.value, kAdds>, {.x = (rows + groups - 1) / groups}, kBlockThreads,
                      context.stream, rows_of<T>(in), of_sum(element), scales, rows, hidden, group_warps,
                      static_cast<float>(epsilon), rows_of<T>(y), inverse);
      },
      [&](auto element, auto width) {
        using T = decltype(element);
        launch_kernel(name, normalise_any<T, width.value, kAdds>, {.x = rows}, kBlockThreads, context.stream,
                      rows_of<T>(in), of_sum(element), scales, hidden, static_cast<float>(epsilon), rows_of<T>(y),
                      inverse);
      });
}

}  // namespace

void rms_norm_forward(const CudaContext& context, ConstTensor x, ConstTensor w, double epsilon, Tensor y,
                      Tensor inverse_rms) {
  launch_normalise<false>("rms_norm_forward", context, x, {}, w, epsilon, y, inverse_rms);
}

void add_rms_norm_forward(const CudaContext& context, ConstTensor residual, Tensor x, ConstTensor w, double epsilon,
                          Tensor y, Tensor inverse_rms) {
  launch_normalise<true>("add_rms_norm_forward", context, residual, x, w, epsilon, y, inverse_rms);
}

void rms_norm_backward(const CudaContext& context, ConstTensor d_y, ConstTensor x, ConstTensor w,
                       ConstTensor inverse_rms, Tensor d_x, Tensor d_w, Tensor scratch) {
  constexpr const char* kName = "rms_norm_backward";
  const int64_t rows = x.extent(0), hidden = x.extent(1);
  if (rows == 0) return;
  const int64_t blocks = rms_norm_scratch(rows, hidden)[0];
  const auto* const scales = device_data<float>(w);
  const auto* const inverse = device_data<float>(inverse_rms);
  auto* const partial = device_data<float>(scratch);
  const auto at = [&](auto element) {
    using T = decltype(element);
    return GradientRows<T>{rows_of<T>(d_y), rows_of<T>(x), rows_of<T>(d_x)};
  };
  for_rows(
      kName, x.dtype(), in_packs({d_y, x, w, d_x, scratch}), hidden,
      [&](auto element, auto columns, int group_warps) {
        launch_kernel(kName, gradients<decltype(element), columns.value>, {.x = blocks}, kBlockThreads, context.stream,
                      at(element), scales, inverse, rows, hidden, group_warps, partial);
      },
      [&](auto element, auto width) {
        launch_kernel(kName, gradients_any<decltype(element), width.value>, {.x = blocks}, kBlockThreads,
                      context.stream, at(element), scales, inverse, rows, hidden, partial);
      });
  launch_kernel(kName, add_partial_sums, {.x = (hidden + kWarp - 1) / kWarp}, kSumWarps * kWarp, context.stream,
                partial, blocks, hidden, device_data<float>(d_w));
}

}  // namespace shiftron::cuda
