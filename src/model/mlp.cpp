// Mlp: forward and backward.
#include "model/mlp.h"

namespace shiftron {

Mlp::Mlp(ParameterSet& set, const std::string& prefix, const ModelConfig& config, int layer)
    : gate_(set.declare({.name = prefix + ".gate.weight", .shape = {config.ffn, config.hidden}, .split_dim = 0,
                         .initial = init_normal(config.init_std), .layer = layer})),
      up_(set.declare({.name = prefix + ".up.weight", .shape = {config.ffn, config.hidden}, .split_dim = 0,
                       .initial = init_normal(config.init_std), .layer = layer},
                      true)),
      down_weight_(set.declare({.name = prefix + ".down.weight", .shape = {config.hidden, config.ffn}, .split_dim = 1,
                                .initial = init_normal(config.init_std), .layer = layer})),
      gate_up_(set, {gate_, up_}, config.hidden),
      down_(set, {down_weight_}, down_weight_->box.extent[1]) {}

Tensor Mlp::forward(Run& run, const Tensor& x_local, Saved& saved) const {
  const Tensor x = gather_rows(run, x_local, run.activations);
  saved.gate_up = gate_up_.forward(run, x, saved.gate_up_input, run.activations);
  Linear::Saved unused;
  return reduce_rows(run, down_.forward(run, activate(run, saved), unused, run.scratch), run.scratch);
}

Tensor Mlp::activate(Run& run, const Saved& saved) const {
  const int64_t ffn = saved.gate_up.extent(1) / 2;
  Tensor activated = run.scratch.allocate(saved.gate_up.dtype(), {saved.gate_up.extent(0), ffn});
  swiglu_forward(run.stream, saved.gate_up.slice(1, 0, ffn), saved.gate_up.slice(1, ffn, ffn), activated);
  return activated;
}

Tensor Mlp::backward(Run& run, const Tensor& d_y_local, const Saved& saved) const {
  const Tensor d_y = gather_rows(run, d_y_local, run.scratch);
  const Tensor d_activated = down_.backward(run, d_y, {activate(run, saved)}, run.scratch);
  const int64_t ffn = d_activated.extent(1);
  const Tensor d_gate_up = saved.gate_up;  // read for the last time
  const Tensor gate = d_gate_up.slice(1, 0, ffn), up = d_gate_up.slice(1, ffn, ffn);
  swiglu_backward(run.stream, d_activated, gate, up, gate, up);
  return reduce_rows(run, gate_up_.backward(run, d_gate_up, saved.gate_up_input, run.scratch), run.scratch);
}

}  // namespace shiftron
