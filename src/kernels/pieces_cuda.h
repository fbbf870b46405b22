// How elementwise CUDA kernels traverse tensors of one shape: one thread for each piece of a row. A piece is as many
// elements of the narrowest type as 16 bytes hold, or one element.
#pragma once

#include <array>

#include "kernels/device_cuda.h"

namespace shiftron::cuda {

// Index of the first element of this thread's piece.
template <int kCount>
__device__ int64_t piece_begin() {
  return (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) * kCount;
}
inline Grid piece_grid(int64_t count, int piece) {
  return grid_for((count + piece - 1) / piece);
}

// Rows of tensors of one shape: extents of all dims but the last, and their strides in each tensor.
template <int kTensors>
struct RowWalk {
  int64_t count = 1, width = 1;  // elements of all rows, and of one row
  int64_t extents[kMaxDims - 1] = {};
  int64_t strides[kMaxDims - 1][kTensors] = {};
  int dims = 0;  // used entries of extents and strides
};

// Undefined tensors get offset 0.
template <typename... Tensors>
RowWalk<sizeof...(Tensors)> row_walk(const Tensors&... tensors) {
  constexpr int kTensors = sizeof...(Tensors);
  const std::array<ConstTensor, kTensors> all = {tensors...};
  RowWalk<kTensors> walk;
  walk.count = all[0].count();
  walk.dims = std::max(0, all[0].dims() - 1);
  walk.width = all[0].dims() == 0 ? 1 : all[0].extent(walk.dims);
  for (int dim = 0; dim < walk.dims; ++dim) {
    walk.extents[dim] = all[0].extent(dim);
    for (int k = 0; k < kTensors; ++k) walk.strides[dim][k] = all[k].defined() ? all[k].stride(dim) : 0;
  }
  return walk;
}

// The tensor as a single row; used if all are contiguous.
inline ConstTensor flat(const ConstTensor& tensor) {
  return tensor.defined() ? tensor.view({tensor.count()}) : tensor;
}

// operation.piece<kCount>(at) processes kCount elements; in tensor k they start at at[k].
template <int kCount, int kTensors, typename Operation>
__global__ void __launch_bounds__(kBlockThreads) each_piece_kernel(RowWalk<kTensors> walk, Operation operation) {
  await_earlier_kernels();
  const int64_t begin = piece_begin<kCount>();
  if (begin >= walk.count) return;
  int64_t row = walk.dims == 0 ? 0 : begin / walk.width;
  int64_t at[kTensors];
  for (int k = 0; k < kTensors; ++k) at[k] = begin - row * walk.width;
  for (int dim = kMaxDims - 2; dim >= 0; --dim) {
    if (dim >= walk.dims) continue;
    const int64_t outer = dim > 0 ? row / walk.extents[dim] : 0;
    const int64_t index = row - outer * walk.extents[dim];
    for (int k = 0; k < kTensors; ++k) at[k] += index * walk.strides[dim][k];
    row = outer;
  }
  operation.template piece<kCount>(at);
}

// Applies `operation` to all elements of tensors of one shape, in pieces of Operation::kPack if in_packs() allows it.
template <typename Operation, typename... Tensors>
void for_each_piece(const char* name, cudaStream_t stream, const Operation& operation, const Tensors&... tensors) {
  constexpr int kTensors = sizeof...(Tensors);
  constexpr int kPack = Operation::kPack;
  const auto go = [&](const auto&... walked) {
    const RowWalk<kTensors> walk = row_walk(walked...);
    if (in_packs({walked...})) {
      launch_kernel(name, each_piece_kernel<kPack, kTensors, Operation>, piece_grid(walk.count, kPack), kBlockThreads,
                    stream, walk, operation);
    } else {
      launch_kernel(name, each_piece_kernel<1, kTensors, Operation>, piece_grid(walk.count, 1), kBlockThreads, stream,
                    walk, operation);
    }
  };
  if (((!tensors.defined() || tensors.contiguous()) && ...)) {
    go(flat(tensors)...);
  } else {
    go(tensors...);
  }
}

}  // namespace shiftron::cuda
