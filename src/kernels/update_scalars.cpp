// Front end of the scalars of an update.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {

void update_scalars(Stream& stream, const UpdateRule& rule, ConstTensor sums, int64_t squares,
                    ConstTensor learning_rate, InOut counters, Tensor scalars, Tensor result) {
  CHECK(sums.count() >= kFirstSquare + squares && counters.tensor.count() == kUpdateCounters &&
            scalars.count() == kUpdateScalars && result.count() == kUpdateResults,
        "wrong counts of scalars");
  launch(stream, "update_scalars", {sums, counters.tensor, learning_rate}, {counters.tensor, scalars, result}, squares,
         DType::float64, BodyTable{specification::update_scalars, nullptr, SHIFTRON_CUDA_BODY(update_scalars)}, rule,
         sums, squares, learning_rate, counters.tensor, scalars, result);
}

}  // namespace shiftron
