// Recompute: a module that keeps only its input and runs forward again in backward.
#pragma once

#include <array>

#include "kernels/kernels.h"
#include "parallel/tensor_parallel.h"

namespace shiftron {

// What backward recomputes in addition to what is always cheap: selective the gate and up products of every layer, full
// whole layers.
enum class RecomputeKind { none, selective, full };
constexpr std::array<const char*, 3> names_of(RecomputeKind) {
  return {"none", "selective", "full"};
}

// Gives the same bits as the module itself, which must outlive it.
template <typename Module>
class Recompute {
 public:
  struct Saved {
    Tensor x;
  };
  explicit Recompute(const Module& module) : module_(&module) {}

  // x, y [local rows, hidden]; y in run.activations, where nothing else is kept.
  Tensor forward(Run& run, const Tensor& x, const Tensor& rope, Saved& saved) const {
    Tensor y = run.activations.allocate(x.dtype(), x.shape());
    ArenaScope scope(run.activations);
    typename Module::Saved unused;
    const Residual made = module_->forward(run, x, rope, unused);
    if (made.before.defined())
      add(run.stream, made.before, made.x, y);
    else
      copy(run.stream, made.x, y);
    saved.x = x;
    return y;
  }
  void backward(Run& run, InOut d_x, const Tensor& rope, const Saved& saved) const {
    ArenaScope scope(run.activations);
    typename Module::Saved again;
    static_cast<void>(module_->forward(run, saved.x, rope, again));
    module_->backward(run, d_x, rope, again);
  }

 private:
  const Module* module_;
};

}  // namespace shiftron
