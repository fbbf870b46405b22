// What a backend's libraries keep for one stream.
#pragma once

#include <memory>

#include "core/memory.h"

namespace shiftron {

// On a GPU handles, plans and a workspace, which the ledger counts under "workspace"; on a CPU nothing. The stream's
// context points to them, until behind the stream's last operation they go.
class Libraries {
 public:
  explicit Libraries(Stream& stream);

 private:
  Buffer workspace_;
  std::shared_ptr<void> kept_;
};

namespace cuda {  // only in builds that have it (kHasCuda)
std::shared_ptr<void> keep_libraries(CudaContext& context, Tensor workspace);
}

}  // namespace shiftron
