// How tests control and query the emulated cuDNN backend (dnn.cpp), which is linked instead of cuDNN.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>

namespace shiftron::machine {

// The plans that the calling thread finalises next are refused with this status.
void refuse_next_plans(int count, cudnnStatus_t status);

// From now on executions by this engine take so much longer; one engine at a time, none where it is 0.
void delay_engine(int64_t engine, int64_t milliseconds);

// Executions by this engine fail from now on; none where it is 0.
inline constexpr int64_t kEveryEngine = -1;
void fail_engine(int64_t engine, cudnnStatus_t status);

// The version that the library says it is of; its own where it is 0.
void pretend_dnn_version(size_t version);

// Plans that were finalised and executed so far, and handles and descriptors that nobody destroyed yet, in the whole
// process.
int64_t finalized_plans();
int64_t executed_plans();
int64_t living_graph_objects();

}  // namespace shiftron::machine
