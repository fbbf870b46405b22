// Only for hdf5_file.cpp: handles, errors and checks of the HDF5 library. It uses the library's types, so no other file
// includes it.
#pragma once

#define H5_USE_110_API
#include <hdf5.h>

#include <mutex>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/hdf5_types.h"

namespace shiftron::hdf5 {

// The library is not thread-safe; all calls hold this process-wide lock. Recursive, because public functions of
// Hdf5File call each other.
class LibraryLock {
 public:
  LibraryLock();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The library's reason: its outermost and innermost descriptions.
std::string library_reason();

// "file, object".
std::string place(const std::string& path, const std::string& object);

template <typename Result>
Result written(Result result, const std::string& path, const std::string& object) {
  if (result < 0) throw_crash("cannot write ", place(path, object), ": ", library_reason());
  return result;
}

template <typename Result>
Result readable(Result result, const std::string& path, const std::string& object) {
  if (result < 0) throw_bad_input("cannot read ", place(path, object), ": ", library_reason());
  return result;
}

// The library's little-endian type.
hid_t library_type(Hdf5Type type);

// All functions below throw Error(bad_input) with `path` and `dataset`.
// Every part of `dataset` must be a hard link: soft and external ones lead elsewhere.
void check_links(hid_t file, const std::string& path, const std::string& dataset);
Hdf5Type file_type(hid_t dataset, const std::string& path, const std::string& name);
std::vector<int64_t> shape_of(hid_t dataset, const std::string& path, const std::string& name);
uint64_t checked_byte_size(const std::vector<int64_t>& shape, Hdf5Type type, const std::string& where);
// Refuses every dataset whose data are not stored plainly in this file.
Hdf5DatasetInfo dataset_info(hid_t file, hid_t dataset, const std::string& path, const std::string& name);
// Appends the paths of all datasets below `group` ("" = the file).
void list_group(hid_t file, const std::string& path, const std::string& group, int depth,
                std::vector<std::string>& found);

}  // namespace shiftron::hdf5
