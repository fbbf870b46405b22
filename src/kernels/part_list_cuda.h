// How one launch goes through several tensors: each is a part of a list, which goes as a parameter of the kernel, and
// the blocks of one part stand behind those of another.
#pragma once

#include "kernels/device_cuda.h"

namespace shiftron::cuda {

template <typename Part>
struct PartList {
  static constexpr size_t kOtherParameters = 64;  // bytes that a kernel may take beside a list
  static constexpr size_t kMost =
      (kMostParameterBytes - kOtherParameters - sizeof(int64_t)) / (sizeof(Part) + sizeof(int32_t));

  Part parts[kMost];
  int32_t begins[kMost];  // the first block of each part
  int32_t count = 0;      // parts
  int32_t blocks = 0;     // of all

  bool full() const { return count == kMost; }
  // With one block at least.
  void add(const Part& part, int64_t blocks_of_part) {
    CHECK(!full(), "more than ", kMost, " parts");
    CHECK(blocks_of_part <= kMostBlocks - blocks, blocks_of_part, " blocks behind ", blocks);
    parts[count] = part;
    begins[count++] = blocks;
    blocks += static_cast<int32_t>(blocks_of_part);
  }
};

// Where a block is: number of its part, and of the block among those of the part. The same in all threads of a block.
struct PlaceInList {
  int part;
  int block;
};
template <typename Part>
__device__ PlaceInList place_in(const PartList<Part>& list) {
  const int block = static_cast<int>(blockIdx.x);
  int part = 0, end = list.count;
  while (end - part > 1) {
    const int middle = (part + end) / 2;
    if (list.begins[middle] <= block) {
      part = middle;
    } else {
      end = middle;
    }
  }
  return {.part = part, .block = block - list.begins[part]};
}

}  // namespace shiftron::cuda
