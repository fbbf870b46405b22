// Front ends of SwiGLU.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {

void swiglu_forward(Stream& stream, ConstTensor gate, ConstTensor up, Tensor y) {
  constexpr const char* kName = "swiglu_forward";
  check_dims(kName, "gate", gate, 2);
  check_floating(kName, "gate", gate);
  const DType dtype = gate.dtype();
  check_argument(stream, kName, "gate", gate, dtype, gate.shape());
  check_argument(stream, kName, "up", up, dtype, gate.shape());
  check_argument(stream, kName, "y", y, dtype, gate.shape());
  launch(stream, kName, {gate, up}, {y}, 5 * y.count(), dtype,
         BodyTable{specification::swiglu_forward, fast::swiglu_forward, SHIFTRON_CUDA_BODY(swiglu_forward)}, gate, up,
         y);
}

void swiglu_backward(Stream& stream, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up,
                     Tensor y) {
  constexpr const char* kName = "swiglu_backward";
  check_dims(kName, "gate", gate, 2);
  check_floating(kName, "gate", gate);
  const DType dtype = gate.dtype();
  check_argument(stream, kName, "d_y", d_y, dtype, gate.shape());
  check_argument(stream, kName, "gate", gate, dtype, gate.shape());
  check_argument(stream, kName, "up", up, dtype, gate.shape());
  check_argument(stream, kName, "d_gate", d_gate, dtype, gate.shape());
  check_argument(stream, kName, "d_up", d_up, dtype, gate.shape());
  if (y.defined()) check_argument(stream, kName, "y", y, dtype, gate.shape());
  launch(stream, kName, {d_y, gate, up}, {d_gate, d_up, y}, (y.defined() ? 13 : 11) * d_y.count(), dtype,
         BodyTable{specification::swiglu_backward, fast::swiglu_backward, SHIFTRON_CUDA_BODY(swiglu_backward)}, d_y,
         gate, up, d_gate, d_up, y);
}

}  // namespace shiftron
