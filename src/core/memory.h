// Buffer: long-lived flat memory. Arena: bump allocation, released whole, sized by a run on meta.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/stream.h"

namespace shiftron {

inline constexpr int64_t kAlignment = 256;  // bytes; of every buffer and every tensor of an arena

// Owns bytes on a device; zeroed at the start; counted in the ledger under `category` while it lives.
class Buffer {
 public:
  Buffer() = default;
  // `of_cuda`: pinned, for copies from and to the device of CUDA.
  Buffer(DeviceKind device, int64_t bytes, Ledger& ledger, std::string category, bool of_cuda = false);
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
  bool of_cuda_ = false;  // its bytes
  Ledger* ledger_ = nullptr;
  std::string category_;
};

// Pinned memory between the host and a stream's device; on meta it is counted alone. Category "staging".
Buffer staging_buffer(Stream& stream, int64_t bytes);

// Bytes that each named arena needs, as a run on meta measured them.
using MemoryPlan = std::map<std::string, int64_t>;

// Of one stream: what is taken back is used again by later work of that stream, so only others must be waited for. They
// pin what they use (Pending), and taking it back orders the stream behind them. All of that is done before an arena goes.
class Arena {
 public:
  // On meta the arena only measures, and its bytes count `alike` times: it stands for that many equal ones. Elsewhere
  // plan[name] bytes are allocated here; asking for more later is an Error. Refers to the stream.
  Arena(Stream& stream, const std::string& name, const MemoryPlan& plan, std::string category, int64_t alike = 1);
  ~Arena();  // waits for the stream, and for who uses its tensors
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor allocate(DType dtype, Shape shape);  // bytes are undefined
  int64_t release();  // takes everything back: every view turns stale; returns how much was in use at most since the last
  // The tensor is this arena's and outlives the scopes that are open.
  bool keeps(const ConstTensor& tensor) const {
    return tensor.lies_below(*record_, scopes_.empty() ? SIZE_MAX : scopes_.front());
  }
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  const std::string& name() const { return name_; }

 private:
  friend class ArenaScope;
  void rewind(size_t tensors, int64_t used);
  void open(int64_t begin, int64_t bytes);   // bytes are a tensor's from here on
  void close(int64_t begin, int64_t bytes);  // are nobody's: filled with NaN, or closed to all, in builds for debugging
  Stream* stream_;
  std::string name_;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  int64_t peak_since_release_ = 0;
  int64_t alike_;
  std::string category_;
  Buffer buffer_;
  std::unique_ptr<ArenaRecord> record_;
  std::vector<size_t> scopes_;  // that are open: how many tensors were there at their start
};

// Gives back at its end what was allocated since its start.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), tensors_(arena.record_->stamps.size()), used_(arena.used_) {
    arena.scopes_.push_back(tensors_);
  }
  ~ArenaScope() noexcept(false) {
    arena_.scopes_.pop_back();
    arena_.rewind(tensors_, used_);
  }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t tensors_;
  int64_t used_;
};

}  // namespace shiftron
