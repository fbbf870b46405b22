// Without a stand-in for CUDA's runtime there is no stream but the null one, and its operations are done at once.
#include "core/check.h"
#include "cuda/streams.h"

namespace shiftron::machine {

void run_in_stream(cudaStream_t stream, std::function<void()> operation) {
  CHECK(stream == nullptr, "a stream without a runtime");
  operation();
}

}  // namespace shiftron::machine
