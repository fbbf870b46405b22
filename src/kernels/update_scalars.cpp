// Front end of the scalars of an update.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {

void update_scalars(Stream& stream, const UpdateRule& rule, ConstTensor sums, int64_t squares,
                    ConstTensor learning_rate, InOut counters, Tensor scalars, Tensor result) {
  constexpr const char* kName = "update_scalars";
  check_argument(stream, kName, "sums", sums, DType::float64, {sums.count()});
  CHECK(sums.count() >= kFirstSquare + squares, kName, ": ", sums.count(), " sums cannot hold ", squares, " squares");
  check_argument(stream, kName, "learning_rate", learning_rate, DType::float64, {1});
  check_argument(stream, kName, "counters", counters.tensor, DType::float64, {kUpdateCounters});
  check_argument(stream, kName, "scalars", scalars, DType::float64, {kUpdateScalars});
  check_argument(stream, kName, "result", result, DType::float64, {kUpdateResults});
  launch(stream, kName, {sums, counters.tensor, learning_rate}, {counters.tensor, scalars, result}, squares,
         DType::float64, BodyTable{specification::update_scalars, nullptr, SHIFTRON_CUDA_BODY(update_scalars)}, rule,
         sums, squares, learning_rate, counters.tensor, scalars, result);
}

}  // namespace shiftron
