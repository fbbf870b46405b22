// Full check of a step: every byte of every file against the manifest, and how HDF5 reads it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "core/file.h"

namespace shiftron {

// Everything wrong with a step directory, one line each, naming file and tensor; empty = valid.
std::vector<std::string> verify_step(const std::string& step_directory, const BytesRead& progress = {});

}  // namespace shiftron
