// HDF5 files of plain arrays: contiguous, unfiltered, little-endian, hard links only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hdf5_types.h"

namespace shiftron {

// One open file. Faults while writing throw Error(crash), faults while reading Error(bad_input), both with the file,
// the dataset and the library's reason. Safe to use from several threads: every call takes the process-wide lock.
class Hdf5File {
 public:
  // A new file; it must not exist. Equal calls give equal bytes: no time stamps. Data of 512 bytes or more start at
  // multiples of 4 KiB.
  static Hdf5File create(const std::string& path);
  // Read only, without file locks and without filter plugins.
  static Hdf5File open(const std::string& path);
  ~Hdf5File();
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) noexcept;

  // "tokens" or "group/name"; missing groups are created. Disk space is allocated at once and not filled.
  void create_dataset(const std::string& dataset, Hdf5Type type, const std::vector<int64_t>& shape);
  // All elements in row-major order.
  void write(const std::string& dataset, const void* data);
  // [first, first + count) of the first dim, all of the others.
  void write_range(const std::string& dataset, int64_t first, int64_t count, const void* data);

  // Attributes of the dataset or group `object`; "/" is the file itself. Written once.
  void set_attribute(const std::string& object, const std::string& name, int64_t value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  void set_attribute(const std::string& object, const std::string& name, const std::string& value);
  bool has_attribute(const std::string& object, const std::string& name) const;
  int64_t integer_attribute(const std::string& object, const std::string& name) const;
  double real_attribute(const std::string& object, const std::string& name) const;
  std::string text_attribute(const std::string& object, const std::string& name) const;

  // Paths of all datasets, sorted, without a leading slash. Throws Error(bad_input) for a soft or external link.
  std::vector<std::string> datasets() const;
  bool has_dataset(const std::string& dataset) const;
  // Refuses external storage, filters, virtual or chunked layout, other element types and links: Error(bad_input).
  Hdf5DatasetInfo info(const std::string& dataset) const;
  // All elements into `data`, which has room for info().byte_size bytes.
  void read(const std::string& dataset, void* data) const;
  // [first, first + count) of the first dim, all of the others.
  void read_range(const std::string& dataset, int64_t first, int64_t count, void* data) const;
  // The whole dataset, which must have the element type `type`.
  template <typename T>
  std::vector<T> read_all(const std::string& dataset, Hdf5Type type) const {
    std::vector<T> values(checked_bytes(dataset, type, sizeof(T)) / sizeof(T));
    read(dataset, values.data());
    return values;
  }

  const std::string& path() const { return path_; }
  // Flushes and closes; a full disk may be reported only here. The destructor closes silently.
  void close();

 private:
  Hdf5File(int64_t file, std::string path) : file_(file), path_(std::move(path)) {}
  // Byte size of a dataset, after checking its type.
  uint64_t checked_bytes(const std::string& dataset, Hdf5Type type, size_t element_size) const;
  int64_t file_ = -1;  // the library's handle
  std::string path_;
};

}  // namespace shiftron
