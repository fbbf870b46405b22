// Copies and sums in CUDA. Sums take two kernels: partial sums of blocks, whose boundaries depend only on shapes, then
// their sum in order.
#include <algorithm>
#include <type_traits>

#include "kernels/bodies.h"
#include "kernels/part_list_cuda.h"
#include "kernels/pieces_cuda.h"
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

template <typename To, typename From>
__device__ To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else {
    return from_float<To>(to_float(value));
  }
}

template <typename From, typename To>
struct Copy {
  static constexpr int kPack = std::max(kPackOf<From>, kPackOf<To>);
  const From* x;
  To* y;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[2]) const {
    const auto from = load_elements<kCount>(x + at[0]);
    Elements<To, kCount> to;
    for (int i = 0; i < kCount; ++i) to[i] = converted<To>(from[i]);
    store_elements(y + at[1], to);
  }
};

template <typename T>
struct Add {
  static constexpr int kPack = kPackOf<T>;
  const T *a, *b;
  T* y;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[3]) const {
    const auto left = load_elements<kCount>(a + at[0]);
    const auto right = load_elements<kCount>(b + at[1]);
    Elements<T, kCount> sum;
    for (int i = 0; i < kCount; ++i) {
      if constexpr (std::is_same_v<T, double>) {
        sum[i] = left[i] + right[i];
      } else {
        sum[i] = from_float<T>(to_float(left[i]) + to_float(right[i]));
      }
    }
    store_elements(y + at[2], sum);
  }
};

// Copies and sums also handle float64, the type of a step's sums.
template <typename Body>
void for_sum_type(const char* name, DType dtype, Body&& body) {
  if (dtype == DType::float64) {
    body(double{});
  } else {
    for_device_type(name, dtype, body);
  }
}

// One tensor of a launch.
struct SquaresPart {
  const float* x;
  int64_t count;
};

// partials[block] = Σ x² over the block's run of a tensor. A thread has the same elements whether or not they are read
// in packs.
__global__ void __launch_bounds__(kBlockThreads)
    square_partials_kernel(PartList<SquaresPart> list, double* partials) {
  await_earlier_kernels();
  constexpr int kPack = kPackOf<float>, kStep = kBlockThreads * kPack;
  static_assert(kSquareRun % kStep == 0);
  const PlaceInList at = place_in(list);
  const int64_t run = at.block * kSquareRun, end = std::min(list.parts[at.part].count, run + kSquareRun);
  const int64_t begin = run + int64_t{threadIdx.x} * kPack;
  const float* x = list.parts[at.part].x;
  double sum = 0;
  if (end - run == kSquareRun && reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    for (int step = 0; step < kSquareRun / kStep; ++step) {
      const auto values = load_elements<kPack>(x + begin + step * kStep);
      for (int i = 0; i < kPack; ++i) sum += double{values[i]} * double{values[i]};
    }
  } else {
    for (int64_t first = begin; first < end; first += kStep) {
      for (int64_t i = first; i < std::min(first + kPack, end); ++i) sum += double{x[i]} * double{x[i]};
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Partial sums [begin, end) are added to sum number `sum`.
struct SumPart {
  int64_t begin, end, sum;
};

// sums[part.sum] += Σ partials of the part; one block for each part.
__global__ void __launch_bounds__(kBlockThreads)
    add_partials_kernel(PartList<SumPart> list, const double* partials, double* sums) {
  await_earlier_kernels();
  const SumPart& part = list.parts[blockIdx.x];
  double total = 0;
  for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kBlockThreads) total += partials[i];
  total = block_sum(total);
  if (threadIdx.x == 0) sums[part.sum] += total;
}

constexpr int kColumnWarps = kBlockThreads / kWarp;

// partials[block.y, j] = Σ x[i, j] over block.y's run of rows. A block has kWarp columns, and each of its warps every
// kColumnWarps-th row.
// x [rows, columns] with `stride` between rows, partials [blocks, columns]
__global__ void __launch_bounds__(kBlockThreads) column_partials_kernel(const float* x, int64_t rows, int64_t columns,
                                                                        int64_t stride, int64_t run, double* partials) {
  await_earlier_kernels();
  SHARED_ARRAY(double, slots, [kColumnWarps][kWarp]);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  const int64_t begin = int64_t{blockIdx.y} * run, end = std::min(rows, begin + run);
  double sum = 0;
  for (int64_t row = begin + warp; column < columns && row < end; row += kColumnWarps) sum += x[row * stride + column];
  slots[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
  for (int other = 1; other < kColumnWarps; ++other) sum += slots[other][lane];
  partials[int64_t{blockIdx.y} * columns + column] = sum;
}

// sums[j] += Σ_block partials[block, j].   partials [blocks, columns]
__global__ void __launch_bounds__(kBlockThreads)
    add_column_partials_kernel(const double* partials, int64_t blocks, int64_t columns, double* sums) {
  await_earlier_kernels();
  const int64_t column = piece_begin<1>();
  if (column >= columns) return;
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += partials[block * columns + column];
  sums[column] += total;
}

}  // namespace

void copy(const CudaContext& context, ConstTensor x, Tensor y) {
  constexpr const char* kName = "copy";
  for_sum_type(kName, x.dtype(), [&](auto from) {
    for_sum_type(kName, y.dtype(), [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      if constexpr (std::is_same_v<From, double> == std::is_same_v<To, double>) {
        for_each_piece(kName, context.stream, Copy<From, To>{device_data<From>(x), device_data<To>(y)}, x, y);
      } else {
        CHECK(false, kName, " has no body from ", name_of(x.dtype()), " to ", name_of(y.dtype()), " in CUDA");
      }
    });
  });
}

void add(const CudaContext& context, ConstTensor a, ConstTensor b, Tensor y) {
  constexpr const char* kName = "add";
  for_sum_type(kName, a.dtype(), [&](auto element) {
    using T = decltype(element);
    for_each_piece(kName, context.stream, Add<T>{device_data<T>(a), device_data<T>(b), device_data<T>(y)}, a, b, y);
  });
}

void sum_of_squares(const CudaContext& context, const std::vector<Squares>& squares, Tensor sums, Tensor scratch) {
  constexpr const char* kName = "sum_of_squares";
  check_float32(kName, squares.front().x.dtype());
  auto* partials = device_data<double>(scratch);
  auto tensors = launcher_of<SquaresPart>([&](const PartList<SquaresPart>& list, int64_t launched) {
    launch_kernel(kName, square_partials_kernel, Grid{.x = list.blocks}, kBlockThreads, context.stream, list,
                  partials + launched);
  });
  auto totals = launcher_of<SumPart>([&](const PartList<SumPart>& list, int64_t) {
    launch_kernel(kName, add_partials_kernel, Grid{.x = list.blocks}, kBlockThreads, context.stream, list, partials,
                  device_data<double>(sums));
  });
  std::vector<SumPart> of_sums;
  for (const auto& [x, sum] : squares) {
    if (x.count() == 0) continue;
    if (of_sums.empty() || of_sums.back().sum != sum) of_sums.push_back({tensors.blocks(), 0, sum});
    tensors.add({device_data<float>(x), x.count()}, square_partials(x.count()));
    of_sums.back().end = tensors.blocks();
  }
  tensors.launch_rest();
  for (const SumPart& part : of_sums) totals.add(part, 1);
  totals.launch_rest();
}

void sum_columns(const CudaContext& context, ConstTensor x, Tensor sums, Tensor scratch) {
  constexpr const char* kName = "sum_columns";
  check_float32(kName, x.dtype());
  const int64_t rows = x.extent(0), columns = x.extent(1), blocks = sum_columns_scratch(rows, columns)[0];
  if (x.count() == 0) return;
  auto* partials = device_data<double>(scratch);
  launch_kernel(kName, column_partials_kernel, Grid{.x = (columns + kWarp - 1) / kWarp, .y = blocks}, kBlockThreads,
                context.stream, device_data<float>(x), rows, columns, x.stride(0), (rows + blocks - 1) / blocks,
                partials);
  launch_kernel(kName, add_column_partials_kernel, piece_grid(columns, 1), kBlockThreads, context.stream, partials,
                blocks, columns, device_data<double>(sums));
}

}  // namespace shiftron::cuda
