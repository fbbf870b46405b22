// Documents of a generator, made on several threads.
#pragma once

#include <cstdint>
#include <functional>

#include "data/generate/generator.h"

namespace shiftron {

// Calls `take` with documents 0 … count − 1 in order, on the caller's thread; it may move their content.
void generate_documents(const DocumentGenerator& generator, uint64_t count, int threads,
                        const std::function<void(GeneratedDocument&)>& take);

}  // namespace shiftron
