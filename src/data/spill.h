// A file with a write buffer.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/file.h"

namespace shiftron {

// The file is created when the buffer is full or flushed for the first time: many spills stay empty. Throws
// Error(crash) if it cannot write or read back.
class Spill {
 public:
  // kept: bytes of the file that a killed build left and that stay; the rest of it is removed.
  explicit Spill(std::string path, uint64_t kept = 0) : path_(std::move(path)), bytes_(kept) {
    if (kept == 0) {
      ::unlink(path_.c_str());
      return;
    }
    file_ = FileDescriptor::open_for_update(path_);
    if (file_.size() < kept) {
      throw_bad_input(path_, " has ", file_.size(), " bytes, but its build had saved ", kept,
                      ", so that it cannot continue; give the command again to start over");
    }
    file_.truncate(kept);
  }

  void add(const void* data, size_t size) {
    const char* begin = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), begin, begin + size);
    bytes_ += size;
    if (buffer_.size() >= kBuffer) flush();
  }
  void flush() {
    if (buffer_.empty()) return;
    if (!file_.is_open()) file_ = FileDescriptor::create(path_);
    file_.append(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  // First start_sync() of all spills, then sync() of each: that waits less.
  void start_sync() {
    flush();
    if (file_.is_open() && synced_ < bytes_) file_.start_writing();
  }
  void sync() {
    if (file_.is_open() && synced_ < bytes_) file_.sync();
    synced_ = bytes_;
  }
  uint64_t bytes() const { return bytes_; }  // added
  const std::string& path() const { return path_; }

  // All of it, after flush().
  template <typename Record>
  std::vector<Record> read() const {
    std::vector<Record> records(bytes_ / sizeof(Record));
    if (!records.empty()) file_.read_at(0, records.data(), records.size() * sizeof(Record));
    return records;
  }

 private:
  static constexpr size_t kBuffer = size_t{64} << 10;
  std::string path_;
  FileDescriptor file_;
  std::vector<char> buffer_;
  uint64_t bytes_;
  uint64_t synced_ = 0;  // bytes
};

}  // namespace shiftron
