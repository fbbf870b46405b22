// WindowedFile: reads equally large elements of a file, mostly from front to back, through a buffer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace shiftron {

// For one thread. Errors as in FileDescriptor.
class WindowedFile {
 public:
  // Elements of `width` bytes, `count` of them from byte `offset`. The buffer takes `window` bytes.
  WindowedFile(const std::string& path, uint64_t offset, uint64_t count, size_t width, size_t window = size_t{1} << 20);
  // The bytes of elements from `first`: at least one, at most `most`. Valid until the next call.
  std::string_view from(uint64_t first, uint64_t most);
  // Element `index` of a file of numbers of type T.
  template <typename T>
  T number(uint64_t index);

  uint64_t count() const { return count_; }
  const std::string& path() const { return file_.path(); }

 private:
  FileDescriptor file_;
  uint64_t offset_, count_;
  size_t width_;
  uint64_t most_;                  // elements in the buffer
  uint64_t begin_ = 0, held_ = 0;  // elements in it
  std::vector<char> buffer_;
};

template <typename T>
T WindowedFile::number(uint64_t index) {
  T value;
  from(index, 1).copy(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

}  // namespace shiftron
