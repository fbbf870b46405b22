// In builds without CUDA the workspace alone, which a plan counts.
#include "kernels/libraries.h"

#include "kernels/kernels.h"

namespace shiftron {

Libraries::Libraries(Stream& stream)
    : workspace_(stream.device, library_workspace(stream), *stream.ledger, "workspace") {
  if constexpr (kHasCuda) {
    if (stream.device != DeviceKind::cuda) return;
    kept_ = cuda::keep_libraries(*stream.cuda, workspace_.tensor(0, DType::uint8, {workspace_.bytes()}));
  }
}

}  // namespace shiftron
