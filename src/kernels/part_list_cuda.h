// Lets one launch process several tensors: each one is a part of a list, which is passed as a kernel parameter. The
// blocks of the parts follow one another.
#pragma once

#include <utility>

#include "kernels/device_cuda.h"

namespace shiftron::cuda {

// A list of at most kParts parts. 0: as many as a kernel parameter can hold, next to kOtherParameters bytes of others.
template <typename Part, size_t kParts = 0>
struct PartList {
  static constexpr size_t kOtherParameters = 64;
  static constexpr size_t kMost = kParts > 0 ? kParts
                                             : (kMostParameterBytes - kOtherParameters - sizeof(int64_t)) /
                                                   (sizeof(Part) + sizeof(int32_t));

  Part parts[kMost];
  int32_t begins[kMost];  // the first block of each part
  int32_t count = 0;      // parts
  int32_t blocks = 0;     // of all parts

  bool full() const { return count == kMost; }
  // Parts may be empty.
  void add(const Part& part, int64_t blocks_of_part) {
    CHECK(!full(), "more than ", kMost, " parts");
    CHECK(blocks_of_part <= kMostBlocks - blocks, blocks_of_part, " blocks after ", blocks);
    parts[count] = part;
    begins[count++] = blocks;
    blocks += static_cast<int32_t>(blocks_of_part);
  }
};

// Position of a block in the list: its part, and its number within that part. The same in all threads of a block.
struct PlaceInList {
  int part;
  int block;
};
template <typename Part, size_t kParts>
__device__ PlaceInList place_in(const PartList<Part, kParts>& list) {
  constexpr size_t kMost = PartList<Part, kParts>::kMost;
  const int block = static_cast<int>(blockIdx.x);
  int part = 0;
  if constexpr (kMost <= 4) {  // no loop, because kernels without free registers would spill its registers
    for (int i = 1; i < static_cast<int>(kMost); ++i) part += i < list.count && list.begins[i] <= block ? 1 : 0;
  } else {
    for (int end = list.count; end - part > 1;) {
      const int middle = (part + end) / 2;
      (list.begins[middle] <= block ? part : end) = middle;
    }
  }
  return {.part = part, .block = block - list.begins[part]};
}

// Launches any number of parts, in as many launches as needed: launch(list, number of blocks in earlier launches).
template <typename Part, typename Launch>
class ListLauncher {
 public:
  explicit ListLauncher(Launch launch) : launch_(std::move(launch)) {}
  void add(const Part& part, int64_t blocks_of_part) {
    if (list_.full()) launch_rest();
    list_.add(part, blocks_of_part);
  }
  // Call once, after the last part.
  void launch_rest() {
    launch_(list_, launched_);
    launched_ += list_.blocks;
    list_.count = list_.blocks = 0;
  }
  int64_t blocks() const { return launched_ + list_.blocks; }  // of all parts added so far

 private:
  Launch launch_;
  PartList<Part> list_;
  int64_t launched_ = 0;
};
template <typename Part, typename Launch>
ListLauncher<Part, Launch> launcher_of(Launch launch) {
  return ListLauncher<Part, Launch>(std::move(launch));
}

}  // namespace shiftron::cuda
