// Of builds without CUDA the workspace alone, which a plan counts.
#include "kernels/libraries.h"

#include "core/queue_cuda.h"
#include "kernels/kernels.h"
#include "kernels/products_cuda.h"

namespace shiftron {

Libraries::Libraries(Stream& stream) : workspace_(stream.device, library_workspace(stream), *stream.ledger, "workspace") {
  if constexpr (kHasCuda) {
    if (stream.device != DeviceKind::cuda) return;
    context_ = stream.cuda;
    products_ = std::make_shared<CudaProducts>(workspace_.tensor(0, DType::uint8, {workspace_.bytes()}), device_name());
    context_->products = products_.get();
  }
}

Libraries::~Libraries() {
  if (context_ != nullptr) context_->products = nullptr;
}

}  // namespace shiftron
