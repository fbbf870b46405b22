// HDF5 by its C library; every call holds one lock, and every feature that reads other files is refused.
#include "core/hdf5_file.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hdf5_library.h"
#include "core/system_error.h"

namespace shiftron {

using namespace hdf5;

namespace {

static_assert(std::endian::native == std::endian::little, "file and memory types are assumed to be the same");

constexpr size_t kLongestText = 1 << 20;

Handle access_properties() {
  const hid_t properties = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fclose_degree(properties, H5F_CLOSE_STRONG);
  H5Pset_libver_bounds(properties, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);  // readable by 1.8 to 2.x
  H5Pset_file_locking(properties, false, true);                           // locks fail on many cluster file systems
  H5Pset_alignment(properties, 512, 4096);
  return {properties, H5Pclose};
}

Handle open_dataset(hid_t file, const std::string& path, const std::string& name) {
  check_links(file, path, name);
  return {readable(H5Dopen2(file, name.c_str(), H5P_DEFAULT), path, name), H5Dclose};
}

// Allocates the dataset's space on disk now, if the file system can: a full disk is reported here, before the library
// holds data that it cannot write.
void reserve_space(hid_t file, hid_t dataset, const std::string& path, const std::string& name) {
  const hsize_t bytes = H5Dget_storage_size(dataset);
  const haddr_t offset = H5Dget_offset(dataset);
  void* descriptor = nullptr;
  if (bytes == 0 || offset == HADDR_UNDEF || H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) < 0) return;
  int result = -1;
  do {
    result = ::fallocate(*static_cast<int*>(descriptor), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    throw_crash("cannot write ", place(path, name), ": ", bytes, " bytes: ", std::strerror(errno), advice_on(errno));
  }
}

// File and memory space of [first, first + count) of a dataset's first dim, all of the others.
std::pair<hid_t, hid_t> range_spaces(const std::string& where, const std::vector<int64_t>& shape, int64_t first,
                                     int64_t count) {
  CHECK(!shape.empty() && first >= 0 && count > 0 && count <= shape[0] && first <= shape[0] - count, where, ": rows ",
        first, " to ", first + count, " of ", shape.size(), " dims, first dim ", shape.empty() ? 1 : shape[0]);
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  std::vector<hsize_t> start(extent.size(), 0), length = extent;
  start[0] = static_cast<hsize_t>(first);
  length[0] = static_cast<hsize_t>(count);
  const auto dims = static_cast<int>(extent.size());
  const hid_t file = H5Screate_simple(dims, extent.data(), nullptr);
  H5Sselect_hyperslab(file, H5S_SELECT_SET, start.data(), nullptr, length.data(), nullptr);
  return {file, H5Screate_simple(dims, length.data(), nullptr)};
}

void write_attribute(hid_t file, const std::string& path, const std::string& object, const std::string& name,
                     hid_t type, const void* value) {
  const std::string where = object + " attribute " + name;
  const Handle owner(written(H5Oopen(file, object.c_str(), H5P_DEFAULT), path, where), H5Oclose);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(written(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), path, where),
                         H5Aclose);
  written(H5Awrite(attribute, type, value), path, where);
}

// Opens a scalar attribute and passes its handle and type to `use`.
template <typename Use>
auto with_attribute(hid_t file, const std::string& path, const std::string& object, const std::string& name, Use use) {
  const std::string where = object + " attribute " + name;
  if (object != "/") check_links(file, path, object);
  const Handle attribute(
      readable(H5Aopen_by_name(file, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), path, where), H5Aclose);
  const Handle type(readable(H5Aget_type(attribute), path, where), H5Tclose);
  const Handle space(readable(H5Aget_space(attribute), path, where), H5Sclose);
  if (H5Sget_simple_extent_npoints(space) != 1) throw_bad_input(place(path, where), ": not a single value");
  return use(static_cast<hid_t>(attribute), static_cast<hid_t>(type), where);
}

std::string text_of_variable_length(hid_t attribute, hid_t type, const std::string& path, const std::string& where) {
  char* text = nullptr;  // owned by the library
  readable(H5Aread(attribute, type, static_cast<void*>(&text)), path, where);
  const std::unique_ptr<char, herr_t (*)(void*)> owner(text, H5free_memory);
  const size_t length = text == nullptr ? 0 : ::strnlen(text, kLongestText + 1);
  if (length > kLongestText) throw_bad_input(place(path, where), ": not a string of at most ", kLongestText, " bytes");
  return {text, length};
}

}  // namespace

Hdf5File Hdf5File::create(const std::string& path) {
  const LibraryLock lock;
  const Handle access = access_properties();
  return {written(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access), path, ""), path};
}

Hdf5File Hdf5File::open(const std::string& path) {
  FileDescriptor::open_for_reading(path);  // so that errors of the machine are SystemErrors, not errors of the content
  const LibraryLock lock;
  const Handle access = access_properties();
  return {readable(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), path, ""), path};
}

Hdf5File::~Hdf5File() {
  if (file_ < 0) return;
  const LibraryLock lock;
  H5Fclose(file_);
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

Hdf5File& Hdf5File::operator=(Hdf5File&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  return *this;
}

void Hdf5File::close() {
  if (file_ < 0) return;
  const LibraryLock lock;
  const herr_t flushed = H5Fflush(file_, H5F_SCOPE_LOCAL);
  const std::string reason = flushed < 0 ? library_reason() : "";
  const herr_t closed = H5Fclose(std::exchange(file_, -1));
  if (flushed < 0) throw_crash("cannot write ", path_, ": ", reason);
  written(closed, path_, "");
}

void Hdf5File::create_dataset(const std::string& dataset, Hdf5Type type, const std::vector<int64_t>& shape) {
  const LibraryLock lock;
  checked_byte_size(shape, type, place(path_, dataset));
  const std::vector<hsize_t> sizes(shape.begin(), shape.end());
  const Handle space(
      shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose);
  written(static_cast<hid_t>(space), path_, dataset);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(creation, H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation, false);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  const Handle made(written(H5Dcreate2(file_, dataset.c_str(), library_type(type), space, links, creation, H5P_DEFAULT),
                            path_, dataset),
                    H5Dclose);
  reserve_space(file_, made, path_, dataset);
}

void Hdf5File::write(const std::string& dataset, const void* data) {
  const LibraryLock lock;
  const Handle handle(written(H5Dopen2(file_, dataset.c_str(), H5P_DEFAULT), path_, dataset), H5Dclose);
  const hid_t type = library_type(file_type(handle, path_, dataset));
  if (H5Dget_storage_size(handle) == 0) return;
  written(H5Dwrite(handle, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), path_, dataset);
}

void Hdf5File::write_range(const std::string& dataset, int64_t first, int64_t count, const void* data) {
  if (count == 0) return;
  const LibraryLock lock;
  const Handle handle(written(H5Dopen2(file_, dataset.c_str(), H5P_DEFAULT), path_, dataset), H5Dclose);
  const hid_t type = library_type(file_type(handle, path_, dataset));
  const auto spaces = range_spaces(place(path_, dataset), shape_of(handle, path_, dataset), first, count);
  const Handle space(spaces.first, H5Sclose), memory(spaces.second, H5Sclose);
  written(H5Dwrite(handle, type, memory, space, H5P_DEFAULT, data), path_, dataset);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, int64_t value) {
  const LibraryLock lock;
  write_attribute(file_, path_, object, name, H5T_STD_I64LE, &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, double value) {
  const LibraryLock lock;
  write_attribute(file_, path_, object, name, H5T_IEEE_F64LE, &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, const std::string& value) {
  const LibraryLock lock;
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, std::max<size_t>(value.size(), 1));
  H5Tset_cset(type, H5T_CSET_UTF8);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  write_attribute(file_, path_, object, name, type, value.c_str());
}

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  const LibraryLock lock;
  return H5Aexists_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

int64_t Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  const LibraryLock lock;
  return with_attribute(file_, path_, object, name, [&](hid_t attribute, hid_t type, const std::string& where) {
    if (H5Tget_class(type) != H5T_INTEGER) throw_bad_input(place(path_, where), ": not a whole number");
    int64_t value = 0;
    readable(H5Aread(attribute, H5T_NATIVE_INT64, &value), path_, where);
    return value;
  });
}

double Hdf5File::real_attribute(const std::string& object, const std::string& name) const {
  const LibraryLock lock;
  return with_attribute(file_, path_, object, name, [&](hid_t attribute, hid_t type, const std::string& where) {
    if (H5Tget_class(type) != H5T_FLOAT) throw_bad_input(place(path_, where), ": not a real number");
    double value = 0;
    readable(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), path_, where);
    return value;
  });
}

std::string Hdf5File::text_attribute(const std::string& object, const std::string& name) const {
  const LibraryLock lock;
  return with_attribute(file_, path_, object, name, [&](hid_t attribute, hid_t type, const std::string& where) {
    if (H5Tget_class(type) != H5T_STRING || H5Tget_size(type) > kLongestText) {
      throw_bad_input(place(path_, where), ": not a string of at most ", kLongestText, " bytes");
    }
    if (H5Tis_variable_str(type) > 0) return text_of_variable_length(attribute, type, path_, where);
    std::string value(H5Tget_size(type), '\0');
    readable(H5Aread(attribute, type, value.data()), path_, where);
    value.resize(value.find_last_not_of('\0') + 1);
    return value;
  });
}

std::vector<std::string> Hdf5File::datasets() const {
  const LibraryLock lock;
  std::vector<std::string> found;
  list_group(file_, path_, "", 0, found);
  std::sort(found.begin(), found.end());
  return found;
}

bool Hdf5File::has_dataset(const std::string& dataset) const {
  const auto all = datasets();
  return std::binary_search(all.begin(), all.end(), dataset);
}

Hdf5DatasetInfo Hdf5File::info(const std::string& dataset) const {
  const LibraryLock lock;
  const Handle handle = open_dataset(file_, path_, dataset);
  return dataset_info(file_, handle, path_, dataset);
}

void Hdf5File::read(const std::string& dataset, void* data) const {
  const LibraryLock lock;
  const Handle handle = open_dataset(file_, path_, dataset);
  const Hdf5DatasetInfo info = dataset_info(file_, handle, path_, dataset);
  if (info.byte_size == 0) return;
  readable(H5Dread(handle, library_type(info.type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), path_, dataset);
}

void Hdf5File::read_range(const std::string& dataset, int64_t first, int64_t count, void* data) const {
  if (count == 0) return;
  const LibraryLock lock;
  const Handle handle = open_dataset(file_, path_, dataset);
  const Hdf5DatasetInfo info = dataset_info(file_, handle, path_, dataset);
  const auto spaces = range_spaces(place(path_, dataset), info.shape, first, count);
  const Handle space(spaces.first, H5Sclose), memory(spaces.second, H5Sclose);
  readable(H5Dread(handle, library_type(info.type), memory, space, H5P_DEFAULT, data), path_, dataset);
}

uint64_t Hdf5File::checked_bytes(const std::string& dataset, Hdf5Type type, size_t element_size) const {
  const Hdf5DatasetInfo found = info(dataset);
  CHECK(element_size == size_of(type), dataset, ": element of ", element_size, " bytes for ", to_string(type));
  if (found.type != type) {
    throw_bad_input(place(path_, dataset), " holds ", to_string(found.type), ", not ", to_string(type));
  }
  return found.byte_size;
}

}  // namespace shiftron
