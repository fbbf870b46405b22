// Front end of the AdamW update.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {

void adamw(Stream& stream, const AdamW& parameters, ConstTensor scalars, InOut gradient, InOut master,
           InOut first_moment, InOut second_moment, Tensor weight) {
  constexpr const char* kName = "adamw";
  check_floating(kName, "master", master.tensor);
  const DType dtype = accumulation_type(master.tensor.dtype());
  const Shape shape = master.tensor.shape();
  const auto check = [&](const char* name, const ConstTensor& tensor, DType type) {
    check_argument(stream, kName, name, tensor, type, shape);
    check_contiguous(kName, name, tensor);
  };
  check_argument(stream, kName, "scalars", scalars, DType::float64, {kUpdateScalars});
  check("gradient", gradient.tensor, dtype);
  check("master", master.tensor, dtype);
  check("first_moment", first_moment.tensor, dtype);
  check("second_moment", second_moment.tensor, dtype);
  if (weight.defined()) check("weight", weight, DType::bfloat16);
  const Launch launch(
      stream, kName, {scalars, gradient.tensor, master.tensor, first_moment.tensor, second_moment.tensor},
      {gradient.tensor, master.tensor, first_moment.tensor, second_moment.tensor, weight}, 16 * shape.count());
  if (!launch.runs()) return;
  use_fast(stream, dtype) ? fast::adamw(stream, parameters, scalars, gradient.tensor, master.tensor,
                                        first_moment.tensor, second_moment.tensor, weight)
                          : specification::adamw(stream, parameters, scalars, gradient.tensor, master.tensor,
                                                 first_moment.tensor, second_moment.tensor, weight);
}

}  // namespace shiftron
