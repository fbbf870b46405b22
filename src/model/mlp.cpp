// Mlp: forward and backward.
#include "model/mlp.h"

namespace shiftron {

Mlp::Mlp(ParameterSet& set, const std::string& prefix, const ModelConfig& config, int layer, bool recompute)
    : gate_(set.declare({.name = prefix + ".gate.weight",
                         .shape = {config.ffn, config.hidden},
                         .split_dim = 0,
                         .initial = init_normal(config.init_std),
                         .layer = layer})),
      up_(set.declare({.name = prefix + ".up.weight",
                       .shape = {config.ffn, config.hidden},
                       .split_dim = 0,
                       .initial = init_normal(config.init_std),
                       .layer = layer},
                      true)),
      down_weight_(set.declare({.name = prefix + ".down.weight",
                                .shape = {config.hidden, config.ffn},
                                .split_dim = 1,
                                .initial = init_normal(config.init_std),
                                .layer = layer})),
      gate_up_(set, {gate_, up_}, config.hidden, SplitFeatures::output),
      down_(set, {down_weight_}, down_weight_->box.extent[1], SplitFeatures::input),
      recompute_(recompute) {}

Residual Mlp::forward(Run& run, const Tensor& x_local, const Tensor& residual, Saved& saved, Tensor y) const {
  const Tensor x = gate_up_.gather_input(run, x_local, run.scratch);
  const Tensor gate_up = gate_up_.forward(run, x, recompute_ ? run.scratch : run.activations);
  if (!recompute_) saved.gate_up = gate_up;
  const int64_t ffn = gate_up.extent(1) / 2;
  Tensor activated = run.scratch.allocate(x.dtype(), {x.extent(0), ffn});
  swiglu_forward(run.stream, gate_up.slice(1, 0, ffn), gate_up.slice(1, ffn, ffn), activated);
  return down_.forward_add(run, activated, residual, y);
}

Tensor Mlp::backward(Run& run, const Tensor& d_y_local, const Tensor& x_local, const Saved& saved) const {
  const Tensor x = gate_up_.gather_input(run, x_local, run.scratch);
  const Tensor gate_up = recompute_ ? gate_up_.forward(run, x, run.scratch) : saved.gate_up;
  const Tensor d_y = down_.gather_gradient(run, d_y_local, run.scratch);
  const Tensor d_activated = down_.backward_input(run, d_y, run.scratch);
  const int64_t ffn = d_activated.extent(1);
  const Tensor gate = gate_up.slice(1, 0, ffn), up = gate_up.slice(1, ffn, ffn);
  // Gradients overwrite gate and up; the output is recomputed into d_activated.
  const Tensor activated = d_activated;
  swiglu_backward(run.stream, d_activated, gate, up, gate, up, activated);
  const Tensor d_gate_up = gate_up;
  down_.backward_weight(run, d_y, activated);
  return gate_up_.backward(run, d_gate_up, x, run.scratch, Linear::KeptOperand::d_y);
}

}  // namespace shiftron
