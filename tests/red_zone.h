// Bytes that an arena keeps between tensors, in builds that detect writes beyond them.
#pragma once

#include "core/memory.h"

namespace shiftron::testing {

inline int64_t red_zone() {
  Ledger ledger;
  Stream stream{.device = DeviceKind::meta, .ledger = &ledger};
  Arena arena(stream, "any", {}, "any");
  (void)arena.allocate(DType::uint8, {kAlignment});
  return arena.used() - kAlignment;
}

}  // namespace shiftron::testing
