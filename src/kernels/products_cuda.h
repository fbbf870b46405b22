// Products of one CUDA stream by cuBLASLt: descriptors and the algorithm of each shape are made once and kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"
#include "kernels/product_choices.h"

namespace shiftron {

// Of one stream; one thread hands over. Whoever makes the stream owns it, and destroys it behind its last product.
class CudaProducts {
 public:
  // `workspace` [bytes] uint8, at a multiple of 256, is this stream's alone; none where undefined. `device` is a name.
  CudaProducts(Tensor workspace, const std::string& device);
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  // c = op(a) op(b), c += …, or c = residual + … (null where the shape adds none), in the stream's order. Error with
  // shape and types where the library refuses.
  void run(CUstream_st* stream, const ProductShape& shape, const void* a, const void* b, const void* residual, void* c);

  // While true the first product of a shape without a choice times the library's candidates and waits for them; where
  // it adds to c, into memory of its own, which is freed behind the timing; candidates that fail are left out. While
  // false (as it begins) such a product takes the library's first candidate.
  void time_candidates(bool timed);
  // What was not timed though it was to be, and why.
  const std::vector<std::string>& untimed() const;
  const ProductChoices& choices() const;
  // From now on shapes take these, those made before too, which are checked here where they are others;
  // ForeignChoices where device or library are others, or one rounds parts of sums.
  void adopt(const ProductChoices& choices);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shiftron
