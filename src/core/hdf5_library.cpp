// Checks that the HDF5 wrapper makes before it trusts a file.
#include "core/hdf5_library.h"

namespace shiftron::hdf5 {
namespace {

constexpr int kDeepestGroup = 8;
constexpr size_t kMostDatasets = 1000000;

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  // A file that could not be closed on a full disk stays half open inside the library, which touches it again in its
  // exit handler and crashes. Every file is closed by its owner, so the exit handler is not needed.
  static const herr_t no_exit_handler = H5dont_atexit();
  static_cast<void>(no_exit_handler);
  return mutex;
}

void check_storage(hid_t dataset, const std::string& path, const std::string& name) {
  const Handle properties(readable(H5Dget_create_plist(dataset), path, name), H5Pclose);
  if (H5Pget_external_count(properties) != 0) {
    throw_bad_input(place(path, name), ": its data is in another file, which is not supported");
  }
  if (H5Pget_nfilters(properties) != 0) {
    throw_bad_input(place(path, name), ": it is filtered (compressed); remove the filters with h5repack -f NONE");
  }
  const H5D_layout_t layout = H5Pget_layout(properties);
  if (layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) {
    throw_bad_input(place(path, name), ": it is chunked or virtual; make it contiguous with h5repack -l CONTI");
  }
}

struct Link {
  std::string name;
  H5L_type_t type;
};

}  // namespace

LibraryLock::LibraryLock() : lock_(library_mutex()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // reasons go into messages, not to stderr
  H5PLset_loading_state(0);
}

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
      throw_bad_input(place(path, part), ": it is a soft or external link; only plain datasets are supported");
    }
  }
}

Hdf5Type file_type(hid_t dataset, const std::string& path, const std::string& name) {
  const Handle type(readable(H5Dget_type(dataset), path, name), H5Tclose);
  for (size_t i = 0; i < names_of(Hdf5Type{}).size(); ++i) {
    const auto candidate = static_cast<Hdf5Type>(i);
    if (H5Tequal(type, library_type(candidate)) > 0) return candidate;
  }
  throw_bad_input(place(path, name), ": its element type is not one of u8 u16 u32 u64 i32 i64 f32 f64 (little-endian)");
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
      throw_bad_input(where, ": its size does not fit into 63 bits");
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
      throw_bad_input(place(path, name), ": its ", info.byte_size, " bytes are not all within the file");
    }
    info.byte_offset = offset;
  }
  return info;
}

void list_group(hid_t file, const std::string& path, const std::string& group, int depth,
                std::vector<std::string>& found) {
  if (depth > kDeepestGroup) throw_bad_input(place(path, group), ": groups are nested deeper than ", kDeepestGroup);
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
      throw_bad_input(place(path, full), ": it is a soft or external link; only plain datasets are supported");
    }
    H5O_info_t object{};
    readable(H5Oget_info_by_name(file, full.c_str(), &object, H5P_DEFAULT), path, full);
    if (object.type == H5O_TYPE_GROUP) list_group(file, path, full, depth + 1, found);
    if (object.type == H5O_TYPE_DATASET) found.push_back(full);
    if (found.size() > kMostDatasets) throw_bad_input(path, ": it has more than ", kMostDatasets, " datasets");
  }
}

}  // namespace shiftron::hdf5
