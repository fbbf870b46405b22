// Front ends of the products of a linear layer.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

// rows · in · out multiplications and as many additions in each product.
int64_t operations_of(int64_t rows, int64_t in, int64_t out) {
  return 2 * rows * in * out;
}

void check_matrices(const char* kernel, const ConstTensor& first, const ConstTensor& second) {
  check_dims(kernel, "the first operand", first, 2);
  check_dims(kernel, "the second operand", second, 2);
  check_floating(kernel, "the first operand", first);
}

void check_product_scratch(const Stream& stream, const char* kernel, const Tensor& scratch, DType dtype, int64_t rows,
                           int64_t in, int64_t out) {
  if (scratch.defined()) check_scratch(stream, kernel, scratch, dtype, matmul_scratch(stream, dtype, rows, in, out));
}

// Both return the number of operations of the product.
int64_t check_forward(const Stream& stream, const char* kernel, const ConstTensor& x, const ConstTensor& w,
                      const Tensor& y, DType result, const Tensor& scratch) {
  check_matrices(kernel, x, w);
  const int64_t rows = x.extent(0);
  const int64_t in = x.extent(1);
  const int64_t out = w.extent(0);
  const DType dtype = x.dtype();
  check_argument(stream, kernel, "x", x, dtype, {rows, in});
  check_argument(stream, kernel, "w", w, dtype, {out, in});
  check_argument(stream, kernel, "y", y, result, {rows, out});
  check_product_scratch(stream, kernel, scratch, dtype, rows, in, out);
  return operations_of(rows, in, out);
}
int64_t check_backward_input(const Stream& stream, const char* kernel, const ConstTensor& d_y, const ConstTensor& w,
                             const Tensor& d_x, DType result, const Tensor& scratch) {
  check_matrices(kernel, d_y, w);
  const int64_t rows = d_y.extent(0);
  const int64_t in = w.extent(1);
  const int64_t out = w.extent(0);
  const DType dtype = d_y.dtype();
  check_argument(stream, kernel, "d_y", d_y, dtype, {rows, out});
  check_argument(stream, kernel, "w", w, dtype, {out, in});
  check_argument(stream, kernel, "d_x", d_x, result, {rows, in});
  check_product_scratch(stream, kernel, scratch, dtype, rows, in, out);
  return operations_of(rows, in, out);
}

}  // namespace

void matmul_forward(Stream& stream, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch) {
  constexpr const char* kName = "matmul_forward";
  const DType dtype = x.dtype();
  check_floating(kName, "y", y);
  const DType result = y.dtype() == dtype ? dtype : accumulation_type(dtype);
  const int64_t operations = check_forward(stream, kName, x, w, y, result, scratch);
  launch(stream, kName, {x, w}, {y}, operations, dtype,
         BodyTable{specification::matmul_forward, fast::matmul_forward, SHIFTRON_CUDA_BODY(matmul_forward)}, x, w, y,
         scratch);
}

void matmul_forward_add(Stream& stream, ConstTensor x, ConstTensor w, ConstTensor residual, Tensor y, Tensor scratch) {
  constexpr const char* kName = "matmul_forward_add";
  const DType dtype = x.dtype();
  const int64_t operations = check_forward(stream, kName, x, w, y, dtype, scratch);
  check_argument(stream, kName, "residual", residual, dtype, y.shape());
  check_apart(kName, "y", y, "residual", residual);
  launch(stream, kName, {x, w, residual}, {y}, operations + y.count(), dtype,
         BodyTable{specification::matmul_forward_add, fast::matmul_forward_add, SHIFTRON_CUDA_BODY(matmul_forward_add)},
         x, w, residual, y, scratch);
}

void matmul_backward_input(Stream& stream, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch) {
  constexpr const char* kName = "matmul_backward_input";
  const int64_t operations = check_backward_input(stream, kName, d_y, w, d_x, d_y.dtype(), scratch);
  launch(stream, kName, {d_y, w}, {d_x}, operations, d_y.dtype(),
         BodyTable{specification::matmul_backward_input, fast::matmul_backward_input,
                   SHIFTRON_CUDA_BODY(matmul_backward_input)},
         d_y, w, d_x, scratch);
}

void matmul_backward_input_sum(Stream& stream, ConstTensor d_y, ConstTensor w, InOut d_x, Tensor scratch) {
  constexpr const char* kName = "matmul_backward_input_sum";
  const DType accumulation = accumulation_type(d_y.dtype());
  const int64_t operations = check_backward_input(stream, kName, d_y, w, d_x.tensor, accumulation, scratch);
  launch(stream, kName, {d_y, w, d_x.tensor}, {d_x.tensor}, operations, d_y.dtype(),
         BodyTable{specification::matmul_backward_input_sum, fast::matmul_backward_input_sum,
                   SHIFTRON_CUDA_BODY(matmul_backward_input_sum)},
         d_y, w, d_x.tensor, scratch);
}

void matmul_backward_weight(Stream& stream, ConstTensor d_y, ConstTensor x, InOut d_w, Tensor scratch) {
  constexpr const char* kName = "matmul_backward_weight";
  check_matrices(kName, d_y, x);
  const int64_t rows = d_y.extent(0);
  const int64_t in = x.extent(1);
  const int64_t out = d_y.extent(1);
  const DType dtype = d_y.dtype();
  check_argument(stream, kName, "d_y", d_y, dtype, {rows, out});
  check_argument(stream, kName, "x", x, dtype, {rows, in});
  check_argument(stream, kName, "d_w", d_w.tensor, accumulation_type(dtype), {out, in});
  check_product_scratch(stream, kName, scratch, dtype, rows, in, out);
  launch(stream, kName, {d_y, x, d_w.tensor}, {d_w.tensor}, operations_of(rows, in, out), dtype,
         BodyTable{specification::matmul_backward_weight, fast::matmul_backward_weight,
                   SHIFTRON_CUDA_BODY(matmul_backward_weight)},
         d_y, x, d_w.tensor, scratch);
}

}  // namespace shiftron
