// The gradient sums of a step, by what each ParameterSpec says.
#include "parallel/gradient_reduction.h"

namespace shiftron {

void reduce_gradients(Stream& stream, const Groups& groups, const ParameterSet& set) {
  groups.tp->all_reduce(stream, InOut(set.replicated_gradients()), Reduction::sum).wait(stream);
  for (const auto& parameter : set.parameters()) {
    const bool shared = parameter->spec.split_dim != kReplicated && tensor_replicas(parameter->spec, groups.layout) > 1;
    if (shared) groups.kv_replica->all_reduce(stream, InOut(parameter->gradient), Reduction::sum).wait(stream);
    if (parameter->spec.tied) groups.tied->all_reduce(stream, InOut(parameter->gradient), Reduction::sum).wait(stream);
  }
  groups.dp->all_reduce(stream, InOut(set.gradients()), Reduction::sum).wait(stream);
}

}  // namespace shiftron
