// SwiGLU MLP (Shazeer 2020) with the residual: residual + down(silu(gate x) · up x).
#pragma once

#include "kernels/kernels.h"
#include "model/config.h"
#include "parallel/tensor_parallel.h"

namespace shiftron {

class Mlp {
 public:
  struct Saved {
    Tensor gate_up;  // [rows, 2 · local ffn]; backward overwrites it; undefined if backward recomputes it
  };
  // `recompute`: backward recomputes the products with gate and up.
  Mlp(ParameterSet& set, const std::string& prefix, const ModelConfig& config, int layer, bool recompute);
  // x, residual, y [local rows, hidden], y in separate memory.
  Residual forward(Run& run, const Tensor& x, const Tensor& residual, Saved& saved, Tensor y) const;
  // d_x without the residual's part, which is d_y. x: as in forward.
  Tensor backward(Run& run, const Tensor& d_y, const Tensor& x, const Saved& saved) const;

 private:
  Parameter *gate_, *up_, *down_weight_;
  Linear gate_up_, down_;
  bool recompute_;
};

}  // namespace shiftron
