// Products on one CUDA stream by cuBLASLt: descriptors and the algorithm of each shape are created once and kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"
#include "kernels/product_choices.h"

namespace shiftron {

// Belongs to one stream; one thread launches. The code that creates the stream owns it and destroys it after its last
// product.
class CudaProducts {
 public:
  // `workspace` [bytes] uint8, aligned to 256 bytes, is used by this stream only; none if undefined. `device` is a
  // name.
  CudaProducts(Tensor workspace, const std::string& device);
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  // c = op(a) op(b), c += …, or c = residual + … (residual is null if the shape adds none), in the stream's order.
  // Error with shape and types if the library refuses.
  void run(CUstream_st* stream, const ProductShape& shape, const void* a, const void* b, const void* residual, void* c);

  // While true, the first product of a shape without a choice times the library's candidates and waits for them. If the
  // product adds to c, the candidates write to temporary memory, which is freed after timing is turned off. Candidates
  // that fail are skipped. While false (the default), such a product takes the library's first candidate.
  void time_candidates(bool timed);
  // What should have been timed but was not, and why.
  const std::vector<std::string>& untimed() const;
  const ProductChoices& choices() const;
  // From now on shapes use these choices, including shapes that already had one; choices that change are checked here.
  // Throws ForeignChoices if they are for another device or library version, or if one rounds parts of sums.
  void adopt(const ProductChoices& choices);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shiftron
