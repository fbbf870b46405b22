// Checks of kernel arguments: every failure names the kernel, the argument and the values.
#pragma once

#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron {

inline void check_floating(const char* kernel, const char* name, const ConstTensor& tensor) {
  CHECK(tensor.defined(), kernel, ": ", name, " is undefined");
  CHECK(tensor.dtype() == DType::float64 || tensor.dtype() == DType::float32 || tensor.dtype() == DType::bfloat16,
        kernel, ": ", name, " holds ", name_of(tensor.dtype()), ", not a floating type");
}

// Checks that the tensor is on the stream's device, has this type and shape and a contiguous last dim, and that its
// arena is not released.
inline void check_argument(const Stream& stream, const char* kernel, const char* name, const ConstTensor& tensor,
                           DType dtype, const Shape& shape) {
  CHECK(tensor.defined(), kernel, ": ", name, " is undefined");
  CHECK(tensor.device() == stream.device, kernel, ": ", name, " is on ", name_of(tensor.device()),
        ", but the stream is on ", name_of(stream.device));
  CHECK(tensor.dtype() == dtype, kernel, ": ", name, " holds ", name_of(tensor.dtype()), ", not ", name_of(dtype));
  CHECK(tensor.shape() == shape, kernel, ": ", name, " is ", tensor.shape().text(), ", not ", shape.text());
  const int last = tensor.dims() - 1;
  CHECK(last < 0 || tensor.extent(last) <= 1 || tensor.stride(last) == 1, kernel, ": the last dim of ", name, " ",
        tensor.shape().text(), " has stride ", last < 0 ? 1 : tensor.stride(last));
  tensor.check_alive();
}

inline void check_contiguous(const char* kernel, const char* name, const ConstTensor& tensor) {
  CHECK(tensor.contiguous(), kernel, ": ", name, " ", tensor.shape().text(), " is not contiguous");
}

inline void check_dims(const char* kernel, const char* name, const ConstTensor& tensor, int dims) {
  CHECK(tensor.defined(), kernel, ": ", name, " is undefined");
  CHECK(tensor.dims() == dims, kernel, ": ", name, " is ", tensor.shape().text(), ", not of ", dims, " dims");
}

// For bodies that write one tensor at other places than they read the other: the two must not overlap anywhere between
// their first and last bytes.
inline void check_apart(const char* kernel, const char* name, const ConstTensor& tensor, const char* other_name,
                        const ConstTensor& other) {
  const auto end = [](const ConstTensor& of) {
    int64_t last = 0;
    for (int dim = 0; dim < of.dims(); ++dim) last += (of.extent(dim) - 1) * of.stride(dim);
    return static_cast<const char*>(of.raw()) + (last + 1) * size_of(of.dtype());
  };
  if (tensor.device() == DeviceKind::meta || tensor.count() == 0) return;
  CHECK(tensor.raw() >= end(other) || other.raw() >= end(tensor), kernel, ": ", name, " overlaps ", other_name);
}

// Checks for scratch of at least `needed` elements; it may be undefined if none are needed.
inline void check_scratch(const Stream& stream, const char* kernel, const ConstTensor& scratch, DType dtype,
                          const Shape& needed) {
  if (needed.count() == 0) return;
  CHECK(scratch.defined(), kernel, ": scratch is undefined, but ", needed.text(), " is needed");
  CHECK(scratch.device() == stream.device && scratch.dtype() == dtype, kernel, ": scratch holds ",
        name_of(scratch.dtype()), " on ", name_of(scratch.device()), ", not ", name_of(dtype), " on ",
        name_of(stream.device));
  CHECK(scratch.contiguous() && scratch.count() >= needed.count(), kernel, ": scratch ", scratch.shape().text(),
        " is smaller than ", needed.text());
  scratch.check_alive();
}

}  // namespace shiftron
