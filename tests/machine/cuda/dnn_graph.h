// Graphs of the emulated cuDNN backend.
#pragma once

#include <functional>

#include "cuda/dnn_descriptor.h"

namespace shiftron::machine {

// Errors where something is not interpreted.
void check_tensor(const Object& tensor);
void check_graph(const Object& graph);

// What executes a graph, with memory by the tensors' numbers; numbers by value are read now. `repeats`: whether sums
// are made in one order, except in float32 memory.
std::function<void()> graph_run(const Object& graph, std::map<int64_t, void*> memory, bool repeats);

}  // namespace shiftron::machine
