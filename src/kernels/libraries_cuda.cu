// cuBLASLt's and cuDNN's part of a stream.
#include "core/queue_cuda.h"
#include "kernels/attention_plans_cuda.h"
#include "kernels/libraries.h"
#include "kernels/products_cuda.h"

namespace shiftron::cuda {
namespace {

struct Kept {
  Kept(CudaContext& of, Tensor workspace) : context(of), products(workspace, device_name()), attention(device_name()) {
    context.products = &products;
    context.attention = &attention;
  }
  ~Kept() {
    context.products = nullptr;
    context.attention = nullptr;
  }
  Kept(const Kept&) = delete;
  CudaContext& context;
  CudaProducts products;
  CudaAttention attention;
};

}  // namespace

std::shared_ptr<void> keep_libraries(CudaContext& context, Tensor workspace) {
  return std::make_shared<Kept>(context, workspace);
}

}  // namespace shiftron::cuda
