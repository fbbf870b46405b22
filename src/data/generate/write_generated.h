// Writes a generator's documents as datasets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/dataset_writer.h"
#include "data/generate/generator.h"

namespace shiftron {

struct GeneratedData {
  DatasetOutput dataset;   // its validation_fraction and seed are ignored
  int64_t vocabulary = 0;  // at least the generator's
  int64_t documents = 0;   // 0 … documents − 1, in this order
  int64_t validation = 0;  // > 0: so many more, for output/validation; the others go to output/train
  std::string request;     // differs for another generator, seed or option of the kind
  std::string source;      // for people
};

// Equal options give equal bytes, with any number of threads. `output`: where progress goes; `notify` gets the datasets
// before the last trace of the build is removed. Errors as in DatasetWriter.
std::vector<BuiltDataset> write_generated(const DocumentGenerator& generator, const GeneratedData& data,
                                          const std::function<void(const std::vector<BuiltDataset>&)>& notify,
                                          const Progress::Output& output = {});

}  // namespace shiftron
