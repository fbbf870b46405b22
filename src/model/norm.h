// RMS norm as a module.
#pragma once

#include "kernels/kernels.h"
#include "parallel/parameter.h"
#include "parallel/tensor_parallel.h"

namespace shiftron {

class RmsNorm {
 public:
  struct Saved {
    Tensor x;            // [local rows, hidden]
    Tensor inverse_rms;  // [local rows] A
  };
  RmsNorm(ParameterSet& set, const std::string& name, int64_t hidden, double epsilon, int layer,
          Part part = Part::layer)
      : weight_(set.declare({.name = name + ".weight", .shape = {hidden}, .initial = init_constant(1),
                             .group = DecayGroup::norm, .keep_precise = true, .part = part, .layer = layer})),
        epsilon_(epsilon) {}

  // y [local rows, hidden] in run.scratch; in.before, if defined, has been added to x.
  Tensor forward(Run& run, const Residual& in, Saved& saved) const {
    const Tensor& x = in.x;
    saved = {x, run.activations.allocate(accumulation_type(x.dtype()), {x.extent(0)})};
    if (!in.before.defined()) return output(run, saved);
    Tensor y = run.scratch.allocate(x.dtype(), x.shape());
    add_rms_norm_forward(run.stream, in.before, InOut(x), weight_->weight, epsilon_, y, saved.inverse_rms);
    return y;
  }

  // The y of forward, recomputed from what is saved: cheaper than keeping it.
  Tensor output(Run& run, const Saved& saved) const {
    Tensor y = run.scratch.allocate(saved.x.dtype(), saved.x.shape());
    rms_norm_forward(run.stream, saved.x, weight_->weight, epsilon_, y, saved.inverse_rms);
    return y;
  }

  // Adds to d_x, the gradient of the residual stream.
  void backward(Run& run, const Tensor& d_y, const Saved& saved, InOut d_x) const {
    ArenaScope scope(run.scratch);
    const Tensor& x = saved.x;
    Tensor scratch = run.scratch.allocate(accumulation_type(x.dtype()), rms_norm_scratch(run.stream, x.extent(0), x.extent(1)));
    rms_norm_backward(run.stream, d_y, x, weight_->weight, saved.inverse_rms, d_x, InOut(weight_->gradient), scratch);
  }

 private:
  Parameter* weight_;
  double epsilon_;
};

}  // namespace shiftron
