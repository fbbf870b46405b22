// Shape and stride arithmetic of tensor views.
#include "core/tensor.h"

namespace shiftron {

const char* name_of(DType dtype) {
  static constexpr const char* kNames[] = {"float64", "float32", "bfloat16", "int64", "int32", "uint16", "uint8"};
  return kNames[static_cast<int>(dtype)];
}

const char* name_of(DeviceKind device) {
  static constexpr const char* kNames[] = {"cpu", "cuda", "meta", "pinned"};
  return kNames[static_cast<int>(device)];
}

Shape::Shape(std::initializer_list<int64_t> extents) {
  for (const int64_t extent : extents) append(extent);
}

void Shape::append(int64_t extent) {
  CHECK(dims_ < kMaxDims, "more than ", kMaxDims, " dims");
  CHECK(extent >= 0, "negative extent ", extent);
  extents_[dims_++] = extent;
}

int64_t Shape::count() const {
  int64_t count = 1;
  for (int dim = 0; dim < dims_; ++dim) count *= extents_[dim];
  return count;
}

bool Shape::operator==(const Shape& other) const {
  if (dims_ != other.dims_) return false;
  for (int dim = 0; dim < dims_; ++dim) {
    if (extents_[dim] != other.extents_[dim]) return false;
  }
  return true;
}

std::string Shape::text() const {
  std::string text = "[";
  for (int dim = 0; dim < dims_; ++dim) text += (dim == 0 ? "" : ", ") + std::to_string(extents_[dim]);
  return text + "]";
}

ConstTensor::ConstTensor(const void* data, DType dtype, Shape shape, DeviceKind device)
    : data_(const_cast<void*>(data)), shape_(shape), dtype_(dtype), device_(device), defined_(true) {
  int64_t stride = 1;
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    strides_[dim] = stride;
    stride *= shape[dim];
  }
}

bool ConstTensor::contiguous() const {
  int64_t stride = 1;
  for (int dim = dims() - 1; dim >= 0; --dim) {
    if (extent(dim) != 1 && strides_[dim] != stride) return false;
    stride *= extent(dim);
  }
  return true;
}

void ConstTensor::check_alive() const {
  CHECK(record_ == nullptr || (place_ < record_->stamps.size() && record_->stamps[place_] == stamp_), "view ",
        shape_.text(), " is used after its arena was released");
}

void ConstTensor::pin(const std::shared_ptr<Pending>& user) const {
  if (record_ != nullptr) record_->pins.push_back({place_, user});
}

void ConstTensor::bind(ArenaRecord* record) {
  record_ = record;
  place_ = record->stamps.size() - 1;
  stamp_ = record->stamps.back();
}

ConstTensor ConstTensor::slice(int dim, int64_t begin, int64_t count) const {
  CHECK(dim < dims() && begin >= 0 && count >= 0 && begin + count <= extent(dim), "slice ", begin, "+", count,
        " of dim ", dim, " of ", shape_.text());
  ConstTensor result = *this;
  if (data_ != nullptr) {
    result.data_ = static_cast<char*>(data_) + begin * strides_[dim] * size_of(dtype_);
  }
  result.shape_[dim] = count;
  return result;
}

ConstTensor ConstTensor::view(Shape shape) const {
  CHECK(contiguous() && shape.count() == count(), shape_.text(), " cannot be viewed as ", shape.text());
  ConstTensor result(data_, dtype_, shape, device_);
  result.record_ = record_;
  result.place_ = place_;
  result.stamp_ = stamp_;
  return result;
}

ConstTensor ConstTensor::split_last(int64_t outer, int64_t inner) const {
  const int last = dims() - 1;
  CHECK(last >= 0 && extent(last) == outer * inner, shape_.text(), " has no last dim of ", outer, "·", inner);
  ConstTensor result = *this;
  result.shape_[last] = outer;
  result.shape_.append(inner);
  result.strides_[last] = inner;
  result.strides_[last + 1] = 1;
  return result;
}

ConstTensor ConstTensor::merge_last() const {
  const int last = dims() - 1;
  CHECK(last >= 1 && strides_[last - 1] == extent(last), "the last two dims of ", shape_.text(), " are not adjacent");
  Shape shape;
  for (int dim = 0; dim < last; ++dim) shape.append(extent(dim) * (dim == last - 1 ? extent(last) : 1));
  ConstTensor result = *this;
  result.shape_ = shape;
  result.strides_[last - 1] = 1;
  return result;
}

}  // namespace shiftron
