// cuBLASLt's and cuDNN's state of a stream.
#include "core/queue_cuda.h"
#include "kernels/attention_plans_cuda.h"
#include "kernels/libraries.h"
#include "kernels/products_cuda.h"

namespace shiftron::cuda {
namespace {

class Kept final : public KeptLibraries {
 public:
  Kept(CudaContext& of, Tensor workspace) : context_(of), products_(workspace, device_name()), attention_(device_name()) {
    context_.products = &products_;
    context_.attention = &attention_;
  }
  ~Kept() override {
    context_.products = nullptr;
    context_.attention = nullptr;
  }
  Kept(const Kept&) = delete;

  void time_candidates(bool timed) override {
    products_.time_candidates(timed);
    attention_.time_candidates(timed);
  }
  LibraryChoices choices() const override {
    return {.products = products_.choices(), .attention = attention_.choices()};
  }
  void adopt(const LibraryChoices& choices) override {
    products_.adopt(choices.products);
    attention_.adopt(choices.attention);
  }
  std::vector<std::string> refusals() const override { return attention_.refusals(); }
  std::vector<std::string> untimed() const override {
    std::vector<std::string> all = products_.untimed();
    all.insert(all.end(), attention_.untimed().begin(), attention_.untimed().end());
    return all;
  }

 private:
  CudaContext& context_;
  CudaProducts products_;
  CudaAttention attention_;
};

}  // namespace

std::unique_ptr<KeptLibraries> keep_libraries(CudaContext& context, Tensor workspace) {
  return std::make_unique<Kept>(context, workspace);
}

}  // namespace shiftron::cuda
