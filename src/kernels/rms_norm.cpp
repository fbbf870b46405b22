// Front ends of the RMS norm.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {

namespace {

void check_forward(const Stream& stream, const char* kernel, const ConstTensor& x, const ConstTensor& w,
                   const Tensor& y, const Tensor& inverse_rms) {
  check_dims(kernel, "x", x, 2);
  check_floating(kernel, "x", x);
  const DType accumulation = accumulation_type(x.dtype());
  const int64_t rows = x.extent(0);
  const int64_t hidden = x.extent(1);
  check_argument(stream, kernel, "x", x, x.dtype(), {rows, hidden});
  check_argument(stream, kernel, "w", w, accumulation, {hidden});
  check_argument(stream, kernel, "y", y, x.dtype(), {rows, hidden});
  check_argument(stream, kernel, "inverse_rms", inverse_rms, accumulation, {rows});
}

}  // namespace

void rms_norm_forward(Stream& stream, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms) {
  constexpr const char* kName = "rms_norm_forward";
  check_forward(stream, kName, x, w, y, inverse_rms);
  launch(stream, kName, {x, w}, {y, inverse_rms}, 4 * x.count(), x.dtype(),
         BodyTable{specification::rms_norm_forward, fast::rms_norm_forward, SHIFTRON_CUDA_BODY(rms_norm_forward)}, x, w,
         epsilon, y, inverse_rms);
}

void add_rms_norm_forward(Stream& stream, ConstTensor residual, InOut in_out_x, ConstTensor w, double epsilon, Tensor y,
                          Tensor inverse_rms) {
  constexpr const char* kName = "add_rms_norm_forward";
  const Tensor& x = in_out_x.tensor;
  check_forward(stream, kName, x, w, y, inverse_rms);
  check_argument(stream, kName, "residual", residual, x.dtype(), x.shape());
  check_apart(kName, "x", x, "residual", residual);
  launch(stream, kName, {residual, x, w}, {x, y, inverse_rms}, 5 * x.count(), x.dtype(),
         BodyTable{specification::add_rms_norm_forward, fast::add_rms_norm_forward,
                   SHIFTRON_CUDA_BODY(add_rms_norm_forward)},
         residual, x, w, epsilon, y, inverse_rms);
}

void rms_norm_backward(Stream& stream, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms,
                       InOut d_x, InOut d_w, Tensor scratch) {
  constexpr const char* kName = "rms_norm_backward";
  check_dims(kName, "x", x, 2);
  check_floating(kName, "x", x);
  const DType dtype = x.dtype();
  const DType accumulation = accumulation_type(dtype);
  const int64_t rows = x.extent(0);
  const int64_t hidden = x.extent(1);
  check_argument(stream, kName, "d_y", d_y, dtype, {rows, hidden});
  check_argument(stream, kName, "x", x, dtype, {rows, hidden});
  check_argument(stream, kName, "w", w, accumulation, {hidden});
  check_argument(stream, kName, "inverse_rms", inverse_rms, accumulation, {rows});
  check_argument(stream, kName, "d_x", d_x.tensor, dtype, {rows, hidden});
  check_argument(stream, kName, "d_w", d_w.tensor, accumulation, {hidden});
  check_scratch(stream, kName, scratch, accumulation, rms_norm_scratch(stream, rows, hidden));
  launch(stream, kName, {d_y, x, w, inverse_rms, d_x.tensor, d_w.tensor}, {d_x.tensor, d_w.tensor}, 11 * x.count(),
         dtype,
         BodyTable{specification::rms_norm_backward, fast::rms_norm_backward, SHIFTRON_CUDA_BODY(rms_norm_backward)},
         d_y, x, w, inverse_rms, d_x.tensor, d_w.tensor, scratch);
}

}  // namespace shiftron
