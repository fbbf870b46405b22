// Tensor and ConstTensor: non-owning views, passed by value. Dimensions are int64; the last one is contiguous.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"

namespace shiftron {

enum class DType : uint8_t { float64, float32, bfloat16, int64, int32, uint16, uint8 };
// meta: shapes without bytes. pinned: host memory that devices copy from and to; no stream runs there.
enum class DeviceKind : uint8_t { cpu, cuda, meta, pinned };

// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
    case DType::uint16:
      return 2;
    case DType::uint8:
      return 1;
  }
  throw_crash("unknown dtype");
}
const char* name_of(DType dtype);
const char* name_of(DeviceKind device);

// Upper half of a float32, rounded to nearest, ties to even; in the halves of masters, ties away from zero.
struct bfloat16 {
  uint16_t bits;
};

inline constexpr int kMaxDims = 4;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);
  int dims() const { return dims_; }
  int64_t operator[](int dim) const { return extents_[dim]; }
  int64_t& operator[](int dim) { return extents_[dim]; }
  int64_t count() const;  // elements; 1 for a scalar
  void append(int64_t extent);
  bool operator==(const Shape& other) const;
  std::string text() const;  // "[3, 4]"

 private:
  std::array<int64_t, kMaxDims> extents_{};
  int dims_ = 0;
};

struct Stream;

// Work in progress that uses tensors.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait(Stream& stream) = 0;  // work enqueued from now on runs after it
  virtual void wait_on_host() = 0;        // returns when it is done
};

// An arena's record of its tensors. A view is stale once the arena was rewound below it.
struct ArenaRecord {
  struct Pin {
    size_t place;  // of the tensor
    std::shared_ptr<Pending> user;
  };
  std::vector<uint64_t> stamps;  // of the current tensors, in the order of their allocation
  uint64_t made = 0;
  std::vector<Pin> pins;
};

class ConstTensor {
 public:
  ConstTensor() = default;
  // Contiguous view of `data`, row-major; data is null on meta.
  ConstTensor(const void* data, DType dtype, Shape shape, DeviceKind device);

  bool defined() const { return defined_; }
  DType dtype() const { return dtype_; }
  DeviceKind device() const { return device_; }
  const Shape& shape() const { return shape_; }
  int dims() const { return shape_.dims(); }
  int64_t extent(int dim) const { return shape_[dim]; }
  int64_t stride(int dim) const { return strides_[dim]; }  // in elements
  int64_t count() const { return shape_.count(); }
  int64_t bytes() const { return count() * size_of(dtype_); }
  bool contiguous() const;
  void check_alive() const;                              // throws if the view's arena was rewound below it
  void pin(const std::shared_ptr<Pending>& user) const;  // the arena reuses the memory only after `user`

  const void* raw() const { return data_; }
  template <typename T>
  const T* data() const;  // for bodies; throws on another dtype or on meta
  template <typename T>
  const T* host_data() const;  // for the host, after all work that writes here; throws if it is not host memory

  ConstTensor rows(int64_t begin, int64_t count) const { return slice(0, begin, count); }
  ConstTensor slice(int dim, int64_t begin, int64_t count) const;
  ConstTensor view(Shape shape) const;                         // contiguous only
  ConstTensor split_last(int64_t outer, int64_t inner) const;  // [.., outer·inner] → [.., outer, inner], any row stride
  ConstTensor merge_last() const;                              // the inverse; needs the last two dims adjacent
  bool is_below(const ArenaRecord& record, size_t place) const { return record_ == &record && place_ < place; }
  void bind(ArenaRecord* record);  // the last tensor allocated there

 protected:
  void* data_ = nullptr;
  ArenaRecord* record_ = nullptr;
  size_t place_ = 0;
  uint64_t stamp_ = 0;
  Shape shape_;
  std::array<int64_t, kMaxDims> strides_{};
  DType dtype_ = DType::float32;
  DeviceKind device_ = DeviceKind::cpu;
  bool defined_ = false;
};

class Tensor : public ConstTensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape, DeviceKind device) : ConstTensor(data, dtype, shape, device) {}

  void* raw() const { return data_; }
  template <typename T>
  T* data() const {
    return const_cast<T*>(ConstTensor::data<T>());
  }
  template <typename T>
  T* host_data() const {
    return const_cast<T*>(ConstTensor::host_data<T>());
  }
  Tensor rows(int64_t begin, int64_t count) const { return slice(0, begin, count); }
  Tensor slice(int dim, int64_t begin, int64_t count) const { return Tensor(ConstTensor::slice(dim, begin, count)); }
  Tensor view(Shape shape) const { return Tensor(ConstTensor::view(shape)); }
  Tensor split_last(int64_t outer, int64_t inner) const { return Tensor(ConstTensor::split_last(outer, inner)); }
  Tensor merge_last() const { return Tensor(ConstTensor::merge_last()); }

 private:
  explicit Tensor(const ConstTensor& other) : ConstTensor(other) {}
};

// A tensor that a kernel reads and adds to, or changes in place.
struct InOut {
  explicit InOut(Tensor value) : tensor(value) {}
  Tensor tensor;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::uint16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::uint8;
};

template <typename T>
const T* ConstTensor::data() const {
  CHECK(DTypeOf<T>::value == dtype_, "tensor holds ", name_of(dtype_));
  CHECK(device_ != DeviceKind::meta || data_ == nullptr, "a meta tensor has no bytes");
  return static_cast<const T*>(data_);
}

template <typename T>
const T* ConstTensor::host_data() const {
  CHECK(device_ == DeviceKind::cpu || device_ == DeviceKind::pinned, "the host reads memory of ", name_of(device_));
  check_alive();
  return data<T>();
}

// Elements before the start of a row; `row` counts over all dims except the last.
inline int64_t row_offset(const ConstTensor& tensor, int64_t row) {
  int64_t offset = 0;
  for (int dim = tensor.dims() - 2; dim >= 0; --dim) {
    offset += row % tensor.extent(dim) * tensor.stride(dim);
    row /= tensor.extent(dim);
  }
  return offset;
}

// The type in which sums over a tensor of `dtype` are accumulated: float64 for float64, otherwise float32.
inline DType accumulation_type(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace shiftron
