// HDF5 by its C library; every call under one lock, every feature that reads elsewhere refused.
#define H5_USE_110_API
#include "core/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <utility>

#include "core/check.h"

namespace shiftron {
namespace {

static_assert(std::endian::native == std::endian::little, "file and memory types are taken to be the same");

constexpr int kDeepestGroup = 8;
constexpr size_t kMostDatasets = 1000000;
constexpr size_t kLongestText = 1 << 20;

// The library is not made for several threads; nothing of it runs without this lock. It is recursive because public
// functions of Hdf5File use each other.
std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

class LibraryLock {
 public:
  LibraryLock() : lock_(library_mutex()) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // reasons go into messages, not to stderr
    H5PLset_loading_state(0);
  }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

// What the library gives as reason: its outermost and innermost descriptions.
std::string library_reason() {
  std::vector<std::string> descriptions;
  const auto collect = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    if (error->desc != nullptr) static_cast<std::vector<std::string>*>(data)->push_back(error->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect, &descriptions);
  if (descriptions.empty()) return "no reason given by HDF5";
  return descriptions.size() == 1 ? descriptions[0] : descriptions.front() + " (" + descriptions.back() + ")";
}

std::string place(const std::string& path, const std::string& object) {
  return object.empty() ? path : path + ", " + object;
}

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

hid_t library_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8:
      return H5T_STD_U8LE;
    case Hdf5Type::u16:
      return H5T_STD_U16LE;
    case Hdf5Type::u32:
      return H5T_STD_U32LE;
    case Hdf5Type::u64:
      return H5T_STD_U64LE;
    case Hdf5Type::i32:
      return H5T_STD_I32LE;
    case Hdf5Type::i64:
      return H5T_STD_I64LE;
    case Hdf5Type::f32:
      return H5T_IEEE_F32LE;
    case Hdf5Type::f64:
      return H5T_IEEE_F64LE;
  }
  throw_crash("no such HDF5 type");
}

Handle access_properties() {
  const hid_t properties = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fclose_degree(properties, H5F_CLOSE_STRONG);
  H5Pset_libver_bounds(properties, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);  // readable by 1.8 to 2.x
  H5Pset_file_locking(properties, false, true);                           // locks fail on many cluster file systems
  H5Pset_alignment(properties, 512, 4096);
  return {properties, H5Pclose};
}

// Every part of `dataset` must be a hard link: soft and external ones lead elsewhere.
void check_links(hid_t file, const std::string& path, const std::string& dataset) {
  size_t end = 0;
  while (end != std::string::npos) {
    end = dataset.find('/', end + 1);
    const std::string part = dataset.substr(0, end);
    H5L_info_t link{};
    if (H5Lget_info(file, part.c_str(), &link, H5P_DEFAULT) < 0) {
      throw_bad_input(path, " has no dataset ", dataset);
    }
    if (link.type != H5L_TYPE_HARD) {
      throw_bad_input(place(path, part), ": a soft or external link; only plain datasets are read");
    }
  }
}

Hdf5Type file_type(hid_t dataset, const std::string& path, const std::string& name) {
  const Handle type(readable(H5Dget_type(dataset), path, name), H5Tclose);
  for (size_t i = 0; i < names_of(Hdf5Type{}).size(); ++i) {
    const auto candidate = static_cast<Hdf5Type>(i);
    if (H5Tequal(type, library_type(candidate)) > 0) return candidate;
  }
  throw_bad_input(place(path, name), ": its element type is none of u8 u16 u32 u64 i32 i64 f32 f64 (little-endian)");
}

Handle open_dataset(hid_t file, const std::string& path, const std::string& name) {
  check_links(file, path, name);
  return {readable(H5Dopen2(file, name.c_str(), H5P_DEFAULT), path, name), H5Dclose};
}

void check_storage(hid_t dataset, const std::string& path, const std::string& name) {
  const Handle properties(readable(H5Dget_create_plist(dataset), path, name), H5Pclose);
  if (H5Pget_external_count(properties) != 0) {
    throw_bad_input(place(path, name), ": its data lie in another file; that is refused");
  }
  if (H5Pget_nfilters(properties) != 0) {
    throw_bad_input(place(path, name),
                    ": it is filtered (compressed); rewrite it without filters, by h5repack -f NONE");
  }
  const H5D_layout_t layout = H5Pget_layout(properties);
  if (layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) {
    throw_bad_input(place(path, name), ": chunked or virtual; rewrite it in one piece, by h5repack -l CONTI");
  }
}

std::vector<int64_t> shape_of(hid_t dataset, const std::string& path, const std::string& name) {
  const Handle space(readable(H5Dget_space(dataset), path, name), H5Sclose);
  const H5S_class_t kind = H5Sget_simple_extent_type(space);
  if (kind == H5S_SCALAR) return {};
  if (kind != H5S_SIMPLE) throw_bad_input(place(path, name), ": it has no shape");
  std::vector<hsize_t> sizes(static_cast<size_t>(readable(H5Sget_simple_extent_ndims(space), path, name)));
  readable(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), path, name);
  return {sizes.begin(), sizes.end()};
}

uint64_t checked_byte_size(const std::vector<int64_t>& shape, Hdf5Type type, const std::string& where) {
  uint64_t bytes = size_of(type);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) || bytes > INT64_MAX) {
      throw_bad_input(where, ": its size does not fit 63 bits");
    }
  }
  return bytes;
}

Hdf5DatasetInfo dataset_info(hid_t file, hid_t dataset, const std::string& path, const std::string& name) {
  check_storage(dataset, path, name);
  Hdf5DatasetInfo info;
  info.type = file_type(dataset, path, name);
  info.shape = shape_of(dataset, path, name);
  info.byte_size = checked_byte_size(info.shape, info.type, place(path, name));
  const haddr_t offset = H5Dget_offset(dataset);
  const Handle properties(readable(H5Dget_create_plist(dataset), path, name), H5Pclose);
  if (info.byte_size > 0 && H5Pget_layout(properties) == H5D_CONTIGUOUS) {
    hsize_t file_size = 0;
    readable(H5Fget_filesize(file, &file_size), path, name);
    if (offset == HADDR_UNDEF || offset > file_size || info.byte_size > file_size - offset) {
      throw_bad_input(place(path, name), ": its ", info.byte_size, " bytes do not lie within the file");
    }
    info.byte_offset = offset;
  }
  return info;
}

// Selects [first, first + count) of a one-dimensional dataset; returns its file space.
hid_t range_space(const std::string& where, const std::vector<int64_t>& shape, int64_t first, int64_t count) {
  CHECK(shape.size() == 1 && first >= 0 && count > 0 && count <= shape[0] && first <= shape[0] - count, where,
        ": elements ", first, " to ", first + count, " of ", shape.size(), " dims, first dim ",
        shape.empty() ? 1 : shape[0]);
  const auto extent = static_cast<hsize_t>(shape[0]);
  const auto start = static_cast<hsize_t>(first);
  const auto length = static_cast<hsize_t>(count);
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, nullptr, &length, nullptr);
  return space;
}

struct Link {
  std::string name;
  H5L_type_t type;
};

void list_group(hid_t file, const std::string& path, const std::string& group, int depth,
                std::vector<std::string>& found) {
  if (depth > kDeepestGroup) throw_bad_input(place(path, group), ": groups nested deeper than ", kDeepestGroup);
  std::vector<Link> links;
  {
    const Handle handle(readable(H5Gopen2(file, group.empty() ? "/" : group.c_str(), H5P_DEFAULT), path, group),
                        H5Gclose);
    const auto collect = [](hid_t, const char* name, const H5L_info_t* link, void* data) -> herr_t {
      auto* all = static_cast<std::vector<Link>*>(data);
      if (all->size() >= kMostDatasets) return -1;
      all->push_back({name, link->type});
      return 0;
    };
    readable(H5Literate(handle, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &links), path, group);
  }
  for (const Link& link : links) {
    const std::string full = group.empty() ? link.name : group + "/" + link.name;
    if (link.type != H5L_TYPE_HARD) {
      throw_bad_input(place(path, full), ": a soft or external link; only plain datasets are read");
    }
    H5O_info_t object{};
    readable(H5Oget_info_by_name(file, full.c_str(), &object, H5P_DEFAULT), path, full);
    if (object.type == H5O_TYPE_GROUP) list_group(file, path, full, depth + 1, found);
    if (object.type == H5O_TYPE_DATASET) found.push_back(full);
    if (found.size() > kMostDatasets) throw_bad_input(path, ": more than ", kMostDatasets, " datasets");
  }
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

// Opens a scalar attribute, gives its type and handle to `use`.
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

}  // namespace

Hdf5File Hdf5File::create(const std::string& path) {
  const LibraryLock lock;
  const Handle access = access_properties();
  return {written(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access), path, ""), path};
}

Hdf5File Hdf5File::open(const std::string& path) {
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
  const Handle space(range_space(place(path_, dataset), shape_of(handle, path_, dataset), first, count), H5Sclose);
  const auto length = static_cast<hsize_t>(count);
  const Handle memory(H5Screate_simple(1, &length, nullptr), H5Sclose);
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
    if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 || H5Tget_size(type) > kLongestText) {
      throw_bad_input(place(path_, where), ": not a text of fixed length");
    }
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
  const Handle space(range_space(place(path_, dataset), info.shape, first, count), H5Sclose);
  const auto length = static_cast<hsize_t>(count);
  const Handle memory(H5Screate_simple(1, &length, nullptr), H5Sclose);
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
