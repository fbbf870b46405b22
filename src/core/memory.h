// Buffer: long-lived flat memory. Arena: bump allocation, released as a whole, sized by a run on meta.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/stream.h"

namespace shiftron {

inline constexpr int64_t kAlignment = 256;  // bytes; alignment of every buffer and of every tensor of an arena

// Owns zero-initialized bytes on a device; the ledger counts them under `category` while it lives.
class Buffer {
 public:
  Buffer() = default;
  // `of_cuda`: pinned, for copies between host and CUDA device.
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
  bool of_cuda_ = false;  // allocated by CUDA
  Ledger* ledger_ = nullptr;
  std::string category_;
};

// Pinned memory for copies between the host and a stream's device; on meta it is only counted. Category "staging".
Buffer staging_buffer(Stream& stream, int64_t bytes);

// Bytes that each named arena needs, as a run on meta measured them.
using MemoryPlan = std::map<std::string, int64_t>;

// Belongs to one stream: released memory is reused by later work of that stream, so only other streams must be waited
// for. They pin what they use (Pending), and releasing it makes the stream wait for them. All of that is done before an
// arena is destroyed.
class Arena {
 public:
  // On meta the arena only measures, and its bytes count `copies` times: it stands for that many equal arenas. On other
  // devices plan[name] bytes are allocated here; asking for more later is an Error. Keeps a reference to the stream.
  Arena(Stream& stream, const std::string& name, const MemoryPlan& plan, std::string category, int64_t copies = 1);
  ~Arena();  // waits for the stream, and for the users of its tensors
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor allocate(DType dtype, Shape shape);  // bytes are undefined
  int64_t release();  // releases everything: all views become stale; returns the peak since the last release
  // Whether the tensor is this arena's and outlives the open scopes.
  bool keeps(const ConstTensor& tensor) const {
    return tensor.is_below(*record_, scopes_.empty() ? SIZE_MAX : scopes_.front());
  }
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  const std::string& name() const { return name_; }

 private:
  friend class ArenaScope;
  void rewind(size_t tensors, int64_t used);
  void open(int64_t begin, int64_t bytes);   // the bytes belong to a tensor from here on
  void close(int64_t begin, int64_t bytes);  // they are unused: filled with NaN, or poisoned, in debug builds
  Stream* stream_;
  std::string name_;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  int64_t peak_since_release_ = 0;
  int64_t copies_;
  std::string category_;
  Buffer buffer_;
  std::unique_ptr<ArenaRecord> record_;
  std::vector<size_t> scopes_;  // open scopes: the number of tensors at the start of each
};

// Releases at its end what was allocated since its start.
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
