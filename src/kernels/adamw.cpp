// Front end of the AdamW update.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {

void adamw(Stream& stream, const AdamW& parameters, ConstTensor scalars, ConstTensor gradient, InOut weight, InOut rest,
           InOut first_moment, InOut second_moment) {
  constexpr const char* kName = "adamw";
  check_floating(kName, "weight", weight.tensor);
  const bool split = rest.tensor.defined();
  const DType dtype = split ? DType::float32 : accumulation_type(weight.tensor.dtype());
  const Shape shape = weight.tensor.shape();
  const auto check = [&](const char* name, const ConstTensor& tensor, DType type) {
    check_argument(stream, kName, name, tensor, type, shape);
    check_contiguous(kName, name, tensor);
  };
  check_argument(stream, kName, "scalars", scalars, DType::float64, {kUpdateScalars});
  check("gradient", gradient, dtype);
  check("weight", weight.tensor, split ? DType::bfloat16 : dtype);
  if (split) check("rest", rest.tensor, DType::uint16);
  check("first_moment", first_moment.tensor, dtype);
  check("second_moment", second_moment.tensor, dtype);
  launch(stream, kName, {scalars, gradient, weight.tensor, rest.tensor, first_moment.tensor, second_moment.tensor},
         {weight.tensor, rest.tensor, first_moment.tensor, second_moment.tensor}, 16 * shape.count(), dtype,
         BodyTable{specification::adamw, fast::adamw, SHIFTRON_CUDA_BODY(adamw)}, parameters, scalars, gradient,
         weight.tensor, rest.tensor, first_moment.tensor, second_moment.tensor);
}

}  // namespace shiftron
