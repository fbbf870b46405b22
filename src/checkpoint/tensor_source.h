// TensorSource: logical tensors, wherever they are stored: a step under any layout, files of another program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace shiftron {

// Receives progress: bytes read so far, and in total.
using BytesRead = std::function<void(uint64_t done, uint64_t total)>;

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const std::vector<ManifestTensor>& tensors() const = 0;  // no path twice
  // Elements of `box` of tensor `index` in row-major order, in the tensor's type. Throws Error naming file and tensor
  // (no_checkpoint for a step); the bytes in `to` are then undefined. Reading ascending boxes of one tensor reads every
  // byte once.
  virtual void read(int index, const Box& box, void* to) = 0;

  // Index of the tensor, −1 = none.
  virtual int find(TensorGroup group, const std::string& name) const = 0;
};

}  // namespace shiftron
