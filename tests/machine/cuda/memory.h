// Memory of the emulated device, and pinned memory: filled with NaN (above 1 GiB: with zeros, on access), ending at an
// inaccessible page, at addresses that are never reused. Only operations can access device memory. Only included by
// files that are not instrumented.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shiftron::machine {

enum class MemoryKind { device, pinned };

class DeviceMemory {
 public:
  // Null where more than `limit` bytes of the device would be in use.
  void* allocate(MemoryKind kind, size_t bytes);
  void free(MemoryKind kind, void* data, const char* call);                    // a fault unless allocate() gave it
  size_t bytes_of(MemoryKind kind, const void* data, const char* call) const;  // a fault as there
  // A fault unless the bytes lie in one allocation of this kind.
  void check_range(MemoryKind kind, const void* data, size_t bytes, const char* call) const;

  // Of operations, which run while some call of the runtime is under way: the last call to end closes what one opened.
  void begin_call();
  void end_call();
  void open();

  int64_t allocations(MemoryKind kind) const;  // that were not freed
  void forget_all();                           // a fault where something was not freed

  size_t limit = 0;
  size_t used = 0;  // of the device

 private:
  int calls_ = 0;
  bool open_ = false;
};

}  // namespace shiftron::machine
