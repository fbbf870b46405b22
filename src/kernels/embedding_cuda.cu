// The embedding lookup and its gradient in CUDA.
#include <bit>

#include "kernels/bodies.h"
#include "kernels/pieces_cuda.h"

namespace shiftron::cuda {
namespace {

// y [rows, hidden] = rows of the table [entries, hidden], or zeros.
template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    embedding_forward_kernel(const int32_t* ids, const T* table, int64_t table_stride, int64_t vocab_begin,
                             int64_t entries, T* y, int64_t y_stride, int64_t rows, int64_t hidden) {
  await_earlier_kernels();
  const int64_t begin = piece_begin<kCount>();
  if (begin >= rows * hidden) return;
  const int64_t row = begin / hidden, column = begin - row * hidden;
  const int64_t entry = ids[row] - vocab_begin;
  Elements<T, kCount> values;
  if (entry >= 0 && entry < entries) {
    values = load_elements<kCount>(table + entry * table_stride + column);
  } else {
    for (int i = 0; i < kCount; ++i) values[i] = from_float<T>(0.0f);
  }
  store_elements(y + row * y_stride + column, values);
}

constexpr int kBackwardWarps = 4;
constexpr int kIdsAhead = 4;  // per lane
constexpr int kAhead = 4;     // rows loaded before the first is added; one warp adds all rows of a frequent entry

// Some columns of the gradient of one entry after another; kept in registers while the entry stays the same.
template <int kCount>
struct OpenEntry {
  float* columns;  // of entry 0
  int64_t stride;
  int64_t entry = -1;
  Elements<float, kCount> sums{};

  template <typename T>
  __device__ void add(int64_t of, const Elements<T, kCount>& values) {
    if (of != entry) {
      write();
      entry = of;
      sums = load_elements<kCount>(columns + entry * stride);
    }
    for (int i = 0; i < kCount; ++i) sums[i] += to_float(values[i]);
  }
  __device__ void write() const {
    if (entry >= 0) store_elements(columns + entry * stride, sums);
  }
};

// d_table[id] += d_y. A warp handles the entries whose number is its block's modulo the number of blocks, a power of
// two (this spreads frequent entries), and kWarp · kCount columns of them. It reads all ids in order, and each lane
// adds to its own columns.
// ids [rows], d_y [rows, hidden], d_table [entries, hidden]
template <int kCount, typename T>
__global__ void __launch_bounds__(kBackwardWarps* kWarp)
    embedding_backward_kernel(const int32_t* ids, int64_t rows, const T* d_y, int64_t d_y_stride, int64_t vocab_begin,
                              int64_t entries, int64_t hidden, float* d_table, int64_t table_stride) {
  await_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t slice = int64_t{blockIdx.y} * kBackwardWarps + warp;
  const int64_t column = (slice * kWarp + lane) * kCount;
  if (slice * kWarp * kCount >= hidden) return;  // the whole warp returns
  const bool inside = column < hidden;
  OpenEntry<kCount> open{.columns = d_table + column, .stride = table_stride};
  for (int64_t begin = 0; begin < rows; begin += kIdsAhead * kWarp) {
    int64_t entry[kIdsAhead];
    for (int k = 0; k < kIdsAhead; ++k) {
      const int64_t row = begin + k * kWarp + lane;
      entry[k] = row < rows ? ids[row] - vocab_begin : -1;
    }
    for (int k = 0; k < kIdsAhead; ++k) {
      const bool here = entry[k] >= 0 && entry[k] < entries && (entry[k] & (gridDim.x - 1)) == blockIdx.x;
      for (unsigned found = __ballot_sync(0xFFFFFFFFu, here); found != 0;) {
        int64_t to[kAhead];
        Elements<T, kCount> values[kAhead];
        for (int i = 0; i < kAhead; ++i) {
          const bool more = found != 0;
          const int next = more ? __ffs(static_cast<int>(found)) - 1 : 0;
          const int64_t of_next = __shfl_sync(0xFFFFFFFFu, entry[k], next);
          to[i] = more ? of_next : -1;
          const int64_t row = begin + k * kWarp + next;
          if (more && inside) values[i] = load_elements<kCount>(d_y + row * d_y_stride + column);
          found &= found - 1;
        }
        for (int i = 0; i < kAhead; ++i) {
          if (to[i] >= 0 && inside) open.add(to[i], values[i]);
        }
      }
    }
  }
  open.write();
}

}  // namespace

void embedding_forward(const CudaContext& context, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y) {
  constexpr const char* kName = "embedding_forward";
  const int64_t rows = ids.extent(0), hidden = table.extent(1);
  for_device_type(kName, table.dtype(), in_packs({table, y}), [&](auto element, auto width) {
    using T = decltype(element);
    launch_kernel(kName, embedding_forward_kernel<width.value, T>, piece_grid(rows * hidden, width), kBlockThreads,
                  context.stream, device_data<int32_t>(ids), device_data<T>(table), table.stride(0), vocab_begin,
                  table.extent(0), device_data<T>(y), y.stride(0), rows, hidden);
  });
}

void embedding_backward(const CudaContext& context, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin,
                        Tensor d_table) {
  constexpr const char* kName = "embedding_backward";
  constexpr int64_t kMostGroups = 1024;
  const int64_t rows = ids.extent(0), entries = d_table.extent(0), hidden = d_table.extent(1);
  if (rows == 0 || entries == 0) return;
  const auto groups =
      std::min<int64_t>(kMostGroups, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(entries))));
  for_device_type(kName, d_y.dtype(), in_packs({d_y, d_table}), [&](auto element, auto width) {
    using T = decltype(element);
    const int64_t columns = int64_t{kBackwardWarps} * kWarp * width;
    launch_kernel(kName, embedding_backward_kernel<width.value, T>,
                  Grid{.x = groups, .y = (hidden + columns - 1) / columns}, kBackwardWarps * kWarp, context.stream,
                  device_data<int32_t>(ids), rows, device_data<T>(d_y), d_y.stride(0), vocab_begin, entries, hidden,
                  device_data<float>(d_table), d_table.stride(0));
  });
}

}  // namespace shiftron::cuda
