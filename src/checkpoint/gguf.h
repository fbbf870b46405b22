// The GGUF format, version 3, which llama.cpp reads: a strict reader, and a writer that streams. A file is a header of
// keys and tensors, then each tensor's elements at a multiple of 32 bytes; all numbers are little-endian.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/file.h"

namespace shiftron {

// The kinds of values that are written and read: uint32, float32, bool, string, and arrays of the last three of int32,
// float32, string.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufEntry = std::pair<std::string, GgufValue>;

inline constexpr uint64_t kGgufAlignment = 32;  // bytes
inline constexpr size_t kLongestGgufName = 63;  // bytes of a tensor's, in llama.cpp
inline constexpr size_t kMostGgufDims = 4;

// Tensors are those of safetensors: F32, F16 or BF16, at most 4 dims, row-major, the outermost first. (The file lists
// the innermost first.)
class GgufWriter {
 public:
  // A new file at `path`. Throws Error(crash).
  GgufWriter(const std::string& path, const std::vector<GgufEntry>& entries,
             const std::vector<SafetensorsTensor>& tensors);
  // The next bytes of the tensors' elements, which follow each other; never across the end of a tensor.
  void append(const void* data, uint64_t bytes);
  void finish();  // all was appended; makes it durable

 private:
  void next_tensor();
  FileDescriptor file_;
  std::vector<uint64_t> bytes_;  // of each tensor
  size_t tensor_ = 0;            // that is written
  uint64_t left_ = 0;            // bytes of it
};

class GgufFile {
 public:
  // Reads and checks the header. Throws Error(bad_input) naming file and what is wrong: another version, another kind
  // of value or element, tensors that overlap, do not fit or stand twice. Nothing larger than the file is allocated.
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, GgufValue>& entries() const { return entries_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // by their place in the file
  // As SafetensorsFile::read().
  void read(const SafetensorsTensor& tensor, uint64_t first, uint64_t count, double* to) const {
    read_elements(file_, tensor, first, count, to);
  }

 private:
  FileDescriptor file_;
  std::map<std::string, GgufValue> entries_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace shiftron
