// What a backend's libraries keep for one stream.
#pragma once

#include <memory>

#include "core/memory.h"

namespace shiftron {

// On a GPU handles, plans and a workspace, which the ledger counts under "workspace"; on a CPU nothing.
class Libraries {
 public:
  explicit Libraries(Stream& stream);  // whose context points here from now on
  ~Libraries();                        // behind the stream's last operation
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

 private:
  CudaContext* context_ = nullptr;
  Buffer workspace_;
  std::shared_ptr<CudaProducts> products_;
};

}  // namespace shiftron
