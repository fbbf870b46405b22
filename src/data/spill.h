// A file with a write buffer.
#pragma once

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
  explicit Spill(std::string path) : path_(std::move(path)) {}

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
  uint64_t bytes_ = 0;
};

}  // namespace shiftron
