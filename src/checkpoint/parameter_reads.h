// What a rank takes of a step into its parameters, whatever layout wrote it.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "parallel/control_plane.h"
#include "parallel/parameter.h"

namespace shiftron {

// A tensor of the model and the boxes of it that this rank needs: elements of a parameter, from `begin` on, one box
// behind the other.
struct WantedTensor {
  ManifestTensor tensor;
  std::vector<Box> boxes;
  int64_t begin;
  const Parameter* parameter;
  ParameterState state;
};

struct Wanted {
  bool moments = false;  // what the set keeps of them, where it has them
  bool kept = false;     // of masters too that alone, not all of them
};
std::vector<WantedTensor> wanted_of(const ParameterSet& set, const Wanted& wanted);

std::vector<ManifestTensor> tensors_of(const std::vector<WantedTensor>& wanted);
// The lists of all ranks, on every rank: each once, since those of a stage are alike.
std::vector<Manifest> gather_tensors(ControlPlane& world, const std::vector<WantedTensor>& wanted);

// Reads all of it into the set, whose tensors may be of another type; moments that the step lacks become zero. Files
// are read front to back, by blocks where they go to the host's memory; what does not is read box by box. Throws
// Error(no_checkpoint) where the step is damaged; the set is partly written then.
void read_into(StepReader& reader, const std::vector<WantedTensor>& wanted, const ParameterSet& set, int threads);

}  // namespace shiftron
