// Products in CUDA: how each of them is passed to cuBLASLt.
#include "kernels/bodies.h"
#include "kernels/device_cuda.h"
#include "kernels/products_cuda.h"

namespace shiftron::cuda {
namespace {

// An operand as stored, and whether the product uses its transpose.
struct Operand {
  ConstTensor tensor;
  bool transposed = false;
};

// The largest power of two, at most 256, that divides all addresses; any number divides a null address.
int64_t common_alignment(std::initializer_list<const void*> addresses) {
  uintptr_t bits = 256;
  for (const void* address : addresses) bits |= reinterpret_cast<uintptr_t>(address);
  return static_cast<int64_t>(bits & (~bits + 1));
}

// c = op(a) op(b), c += op(a) op(b), or c = residual + op(a) op(b).
void product(const CudaContext& context, const char* name, const Operand& a, const Operand& b, bool adds,
             const Tensor& c, const ConstTensor& residual = {}) {
  CHECK(context.products != nullptr, name, ": the stream has no products");
  const DType dtype = a.tensor.dtype();
  for_device_type(name, dtype, [](auto) {});
  const ProductShape shape{.m = c.extent(0),
                           .n = c.extent(1),
                           .k = a.tensor.extent(a.transposed ? 0 : 1),
                           .a_transposed = a.transposed,
                           .b_transposed = b.transposed,
                           .adds = adds,
                           .operands = dtype,
                           .result = c.dtype(),
                           .a_stride = a.tensor.stride(0),
                           .b_stride = b.tensor.stride(0),
                           .c_stride = c.stride(0),
                           .residual_stride = residual.defined() ? residual.stride(0) : 0,
                           .alignment =
                               common_alignment({a.tensor.raw(), b.tensor.raw(), c.raw(), residual.raw()})};
  if (shape.m == 0 || shape.n == 0 || (shape.k == 0 && adds)) return;
  CHECK(shape.k > 0, name, ": no terms in ", shape.text());
  context.products->run(context.stream, shape, a.tensor.raw(), b.tensor.raw(), residual.raw(), c.raw());
}

}  // namespace

void matmul_forward(const CudaContext& context, ConstTensor x, ConstTensor w, Tensor y, Tensor) {
  product(context, "matmul_forward", {x}, {w, true}, false, y);
}

void matmul_forward_add(const CudaContext& context, ConstTensor x, ConstTensor w, ConstTensor residual, Tensor y,
                        Tensor) {
  product(context, "matmul_forward_add", {x}, {w, true}, false, y, residual);
}

void matmul_backward_input(const CudaContext& context, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor) {
  product(context, "matmul_backward_input", {d_y}, {w}, false, d_x);
}

void matmul_backward_input_sum(const CudaContext& context, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor) {
  product(context, "matmul_backward_input_sum", {d_y}, {w}, true, d_x);
}

void matmul_backward_weight(const CudaContext& context, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor) {
  product(context, "matmul_backward_weight", {d_y, true}, {x}, true, d_w);
}

}  // namespace shiftron::cuda
