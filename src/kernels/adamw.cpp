// Front end of the AdamW update.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

constexpr const char* kName = "adamw";

// Returns the type in which the parameter is updated.
DType check_parameter(const Stream& stream, const AdamWParameter& parameter) {
  const auto& [weight_decay, learning_rate_scale, to_unit_interval, gradient, weight, rest, first_moment,
               second_moment] = parameter;
  check_floating(kName, "weight", weight);
  const bool split = rest.defined();
  const DType dtype = split ? DType::float32 : accumulation_type(weight.dtype());
  const auto check = [&, &shape = weight.shape()](const char* name, const ConstTensor& tensor, DType type) {
    check_argument(stream, kName, name, tensor, type, shape);
    check_contiguous(kName, name, tensor);
  };
  check("gradient", gradient, dtype);
  check("weight", weight, split ? DType::bfloat16 : dtype);
  if (split) check("rest", rest, DType::uint16);
  check("first_moment", first_moment, dtype);
  check("second_moment", second_moment, dtype);
  return dtype;
}

}  // namespace

void adamw(Stream& stream, const AdamW& how, ConstTensor scalars, const std::vector<AdamWParameter>& parameters) {
  if (parameters.empty()) return;
  check_argument(stream, kName, "scalars", scalars, DType::float64, {kUpdateScalars});
  DType dtype{};  // of the first parameter
  Operands reads({scalars}), writes({});
  int64_t count = 0;
  for (const AdamWParameter& parameter : parameters) {
    const DType own = check_parameter(stream, parameter);
    if (&parameter == &parameters.front()) dtype = own;
    CHECK(own == dtype, kName, ": a parameter is updated in ", name_of(own), ", but the first one in ", name_of(dtype));
    const auto& [weight_decay, learning_rate_scale, to_unit_interval, gradient, weight, rest, first_moment,
                 second_moment] = parameter;
    reads.add({gradient, weight, rest, first_moment, second_moment});
    writes.add({weight, rest, first_moment, second_moment});
    count += weight.count();
  }
  launch(stream, kName, reads, writes, 16 * count, dtype,
         BodyTable{specification::adamw, fast::adamw, SHIFTRON_CUDA_BODY(adamw)}, how, scalars, parameters);
}

}  // namespace shiftron
