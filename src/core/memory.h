// Buffer: long-lived flat memory. Arena: bump allocation, released whole, sized by a run on meta.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/ledger.h"
#include "core/tensor.h"

namespace shiftron {

inline constexpr int64_t kAlignment = 256;  // bytes; of every buffer and every tensor of an arena

// Owns bytes on a device; zeroed at the start; counted in the ledger under `category` while it lives.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DeviceKind device, int64_t bytes, Ledger& ledger, std::string category);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  int64_t bytes() const { return bytes_; }
  Tensor tensor(int64_t byte_offset, DType dtype, Shape shape) const;

 private:
  void free();
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  DeviceKind device_ = DeviceKind::cpu;
  Ledger* ledger_ = nullptr;
  std::string category_;
};

// Bytes that each named arena needs, as a run on meta measured them.
using MemoryPlan = std::map<std::string, int64_t>;

class Arena {
 public:
  // On meta the arena only measures, and its bytes count `alike` times: it stands for that many equal ones. Elsewhere
  // plan[name] bytes are allocated here; asking for more later is an Error.
  Arena(DeviceKind device, const std::string& name, const MemoryPlan& plan, Ledger& ledger, std::string category,
        int64_t alike = 1);

  Tensor allocate(DType dtype, Shape shape);  // bytes are undefined
  void release();                             // every view of the arena turns stale
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  const std::string& name() const { return name_; }

 private:
  friend class ArenaScope;
  void rewind(int64_t used);
  DeviceKind device_;
  std::string name_;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  int64_t alike_;
  Ledger* ledger_;
  std::string category_;
  Buffer buffer_;
  std::unique_ptr<Generation> generation_;
};

// Gives back at its end what was allocated since its start.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), used_(arena.used_) {}
  ~ArenaScope() { arena_.rewind(used_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t used_;
};

}  // namespace shiftron
