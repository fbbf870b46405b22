// The GGUF format, version 3, which llama.cpp reads: a strict reader, and a writer that streams. A file is a header of
// keys and tensors, then each tensor's elements at a multiple of 32 bytes; all numbers are little-endian.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/file.h"
#include "interchange/safetensors.h"

namespace shiftron {

// The supported kinds of values: uint32, float32, bool, string, and arrays of int32, float32 or string.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufEntry = std::pair<std::string, GgufValue>;

inline constexpr uint64_t kGgufAlignment = 32;  // bytes
inline constexpr size_t kLongestGgufName = 63;  // bytes of a tensor's name, in llama.cpp
inline constexpr size_t kMostGgufDims = 4;

// Tensors are described as in safetensors: F32, F16 or BF16, at most 4 dims, row-major, outermost dim first. (The file
// lists the innermost first.)
class GgufWriter {
 public:
  // A new file at `path`. Throws Error(crash).
  GgufWriter(const std::string& path, const std::vector<GgufEntry>& entries,
             const std::vector<SafetensorsTensor>& tensors);
  // The next bytes of the elements, one tensor after the other; a call must not cross the end of a tensor.
  void append(const void* data, uint64_t bytes);
  void finish();  // call after appending everything; makes the file durable

 private:
  void next_tensor();
  FileDescriptor file_;
  std::vector<uint64_t> bytes_;  // of each tensor
  size_t tensor_ = 0;            // index of the tensor being written
  uint64_t left_ = 0;            // bytes of it not yet written
};

class GgufFile {
 public:
  // Reads and checks the header. Throws Error(bad_input) naming the file and what is wrong: another version, another
  // kind of value or element, tensors that overlap, do not fit or appear twice. Nothing larger than the file is
  // allocated.
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, GgufValue>& entries() const { return entries_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // in file order
  // Like SafetensorsFile::read().
  void read(const SafetensorsTensor& tensor, uint64_t first, uint64_t count, double* to) const {
    read_elements(file_, tensor, first, count, to);
  }

 private:
  FileDescriptor file_;
  std::map<std::string, GgufValue> entries_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace shiftron
