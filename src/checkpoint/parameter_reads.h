// What a rank reads from a step into its parameters, independent of the layout that wrote it.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "parallel/control_plane.h"
#include "parallel/parameter.h"

namespace shiftron {

// A tensor of the model and the boxes of it that this rank needs. One after the other, they hold the elements of
// `parameter` from `begin` on.
struct WantedTensor {
  ManifestTensor tensor;
  std::vector<Box> boxes;
  int64_t begin;
  const Parameter* parameter;
  ParameterState state;
};

struct Wanted {
  bool moments = false;  // also the moments that the set keeps, if any
  bool kept = false;     // of masters only the part that this rank keeps
};
std::vector<WantedTensor> wanted_of(const ParameterSet& set, const Wanted& wanted);

std::vector<ManifestTensor> tensors_of(const std::vector<WantedTensor>& wanted);
// The lists of all ranks, on every rank; equal lists, such as those of one stage, appear once.
std::vector<Manifest> gather_tensors(ControlPlane& world, const std::vector<WantedTensor>& wanted);

// Reads everything into the set, casting if types differ; moments that the step lacks become zero. Files are read front
// to back: block by block into the host's memory, otherwise box by box. Throws Error(no_checkpoint) if the step is
// damaged; the set is then partly written.
void read_into(StepReader& reader, const std::vector<WantedTensor>& wanted, const ParameterSet& set, int threads);

}  // namespace shiftron
