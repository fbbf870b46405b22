// The safetensors format: a strict reader, and a writer that streams. A file is the header's length (u64,
// little-endian), a JSON header, and the elements of all tensors without gaps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "core/file.h"

namespace shiftron {

enum class SafetensorsType { F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL };
constexpr std::array<const char*, 15> names_of(SafetensorsType) {
  return {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32",
          "I16", "I8",  "U64", "U32",  "U16",     "U8",      "BOOL"};
}
uint64_t size_of(SafetensorsType type);  // bytes of one element
// "bfloat16"; only for types of weights: F64, F32, F16 and BF16.
std::string dtype_name(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::F32;
  std::vector<uint64_t> shape;  // at most 8 dims; empty = a scalar
  uint64_t begin = 0;           // byte in the file; ignored for a tensor that is to be written
  uint64_t count() const;       // elements
  uint64_t bytes() const { return count() * size_of(type); }
  std::string shape_text() const;  // "[3, 4]"
};

// Throws Error(bad_input) that names file, tensor and type if the type is not one of weights.
void require_weight_type(const std::string& path, const SafetensorsTensor& tensor);

// Like SafetensorsFile::read(), for any file that holds the tensor's elements from byte `tensor.begin` on.
void read_elements(const FileDescriptor& file, const SafetensorsTensor& tensor, uint64_t first, uint64_t count,
                   double* to);

// Limits for untrusted files.
inline constexpr uint64_t kLargestSafetensorsHeader = 100'000'000;  // bytes, as in the reference implementation
inline constexpr size_t kMostSafetensorsDims = 8;
inline constexpr size_t kLongestSafetensorsName = 512;  // bytes

// A name from a file, quoted and shortened for messages.
std::string shown_name(const std::string& name);

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws Error(bad_input) naming file, tensor and what is wrong. Nothing larger than
  // the file itself is allocated.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // in file order
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Elements [first, first + count) of a floating-point tensor, widened exactly to double, or as float (F64 is rounded
  // to nearest). Throws Error(bad_input) for tensors of another type.
  void read(const SafetensorsTensor& tensor, uint64_t first, uint64_t count, float* to) const;
  void read(const SafetensorsTensor& tensor, uint64_t first, uint64_t count, double* to) const;

 private:
  FileDescriptor file_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes one file, the bytes of its tensors one after the other. Without finish() the file is incomplete.
class SafetensorsWriter {
 public:
  // A new file at `path`. Throws Error(crash).
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                    const std::map<std::string, std::string>& metadata);
  void append(const void* data, uint64_t bytes);
  void finish();  // call after appending everything; makes the file durable

 private:
  FileDescriptor file_;
  uint64_t left_ = 0;  // bytes
};

// Distributes tensors, in order, over files of at most `limit` bytes of elements each; a larger tensor has a file of
// its own.
std::vector<std::vector<SafetensorsTensor>> safetensors_shards(const std::vector<SafetensorsTensor>& tensors,
                                                               uint64_t limit);
// "model.safetensors", or "model-00002-of-00003.safetensors"; `index` from 0.
std::string safetensors_shard_name(size_t index, size_t shards);
// model.safetensors.index.json: which file holds which tensor, and the bytes of all tensors.
std::string safetensors_index(const std::vector<std::vector<SafetensorsTensor>>& shards);

// The tensors of a directory's model.safetensors, or of the files that its index names.
class SafetensorsDirectory {
 public:
  // Throws Error(bad_input): no such files (for a pickled model the message says how to convert it), an index that
  // disagrees with its files, a tensor in two of them.
  explicit SafetensorsDirectory(const std::string& directory);
  struct Entry {
    const SafetensorsFile* file;
    const SafetensorsTensor* tensor;
  };
  const std::string& directory() const { return directory_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const Entry* find(const std::string& name) const;  // or null

 private:
  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace shiftron
