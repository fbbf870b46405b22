// Element types of HDF5 datasets, and what a dataset is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace shiftron {

// Little-endian element types; bf16 is stored as u16 with an attribute of its owner's choice.
enum class Hdf5Type { u8, u16, u32, u64, i32, i64, f32, f64 };
constexpr std::array<std::string_view, 8> names_of(Hdf5Type) {
  return {"u8", "u16", "u32", "u64", "i32", "i64", "f32", "f64"};
}
constexpr size_t size_of(Hdf5Type type) {
  constexpr std::array<size_t, 8> kSizes = {1, 2, 4, 8, 4, 8, 4, 8};
  return kSizes[static_cast<size_t>(type)];
}

struct Hdf5DatasetInfo {
  Hdf5Type type = Hdf5Type::u8;
  std::vector<int64_t> shape;  // empty = one element
  uint64_t byte_offset = 0;    // of the first element in the file; 0 if the dataset has no element
  uint64_t byte_size = 0;
};

}  // namespace shiftron
