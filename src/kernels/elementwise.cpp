// Front ends of copies and sums.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

bool is_integer(DType dtype) {
  return dtype == DType::int64 || dtype == DType::int32 || dtype == DType::uint16 || dtype == DType::uint8;
}

}  // namespace

void fill_zero(Stream& stream, Tensor x) {
  constexpr const char* kName = "fill_zero";
  check_argument(stream, kName, "x", x, x.dtype(), x.shape());
  check_contiguous(kName, "x", x);
  launch(stream, kName, {}, {x}, 0, x.dtype(),
         BodyTable{specification::fill_zero, fast::fill_zero, SHIFTRON_CUDA_BODY(fill_zero)}, x);
}

void copy(Stream& stream, ConstTensor x, Tensor y) {
  constexpr const char* kName = "copy";
  if (x.defined() && is_integer(x.dtype())) {
    check_argument(stream, kName, "x", x, x.dtype(), x.shape());
    check_argument(stream, kName, "y", y, x.dtype(), x.shape());
    check_contiguous(kName, "x", x);
    check_contiguous(kName, "y", y);
    return launch(stream, kName, {x}, {y}, 0, x.dtype(),
                  BodyTable{specification::copy_bytes, nullptr, SHIFTRON_CUDA_BODY(copy_bytes)}, x, y);
  }
  check_floating(kName, "x", x);
  check_floating(kName, "y", y);
  check_argument(stream, kName, "x", x, x.dtype(), x.shape());
  check_argument(stream, kName, "y", y, y.dtype(), x.shape());
  launch(stream, kName, {x}, {y}, 0, x.dtype() == DType::float64 ? x.dtype() : y.dtype(),
         BodyTable{specification::copy, fast::copy, SHIFTRON_CUDA_BODY(copy)}, x, y);
}

namespace {

void copy_to_or_from_host(Stream& stream, const char* kernel, const ConstTensor& host, const ConstTensor& device,
                          const ConstTensor& x, const Tensor& y) {
  check_argument(stream, kernel, "the device's side", device, device.dtype(), device.shape());
  check_contiguous(kernel, "the device's side", device);
  check_contiguous(kernel, "the host's side", host);
  CHECK(host.device() == DeviceKind::pinned || stream.device == DeviceKind::meta, kernel, ": the host's side is on ",
        name_of(host.device()));
  CHECK(host.dtype() == device.dtype() && host.shape() == device.shape(), kernel, ": ", x.shape().text(), " of ",
        name_of(x.dtype()), " into ", y.shape().text(), " of ", name_of(y.dtype()));
  launch(stream, kernel, {x}, {y}, 0, x.dtype(),
         BodyTable{specification::copy_bytes, nullptr, SHIFTRON_CUDA_BODY(copy_bytes)}, x, y);
}

}  // namespace

void upload(Stream& stream, ConstTensor x, Tensor y) { copy_to_or_from_host(stream, "upload", x, y, x, y); }
void download(Stream& stream, ConstTensor x, Tensor y) { copy_to_or_from_host(stream, "download", y, x, x, y); }

void add(Stream& stream, ConstTensor a, ConstTensor b, Tensor y) {
  constexpr const char* kName = "add";
  check_floating(kName, "a", a);
  check_argument(stream, kName, "a", a, a.dtype(), a.shape());
  check_argument(stream, kName, "b", b, a.dtype(), a.shape());
  check_argument(stream, kName, "y", y, a.dtype(), a.shape());
  launch(stream, kName, {a, b}, {y}, y.count(), a.dtype(),
         BodyTable{specification::add, fast::add, SHIFTRON_CUDA_BODY(add)}, a, b, y);
}

void sum_of_squares(Stream& stream, const std::vector<Squares>& squares, InOut sums, Tensor scratch) {
  constexpr const char* kName = "sum_of_squares";
  if (squares.empty()) return;
  check_dims(kName, "sums", sums.tensor, 1);
  check_argument(stream, kName, "sums", sums.tensor, DType::float64, sums.tensor.shape());
  check_scratch(stream, kName, scratch, DType::float64, sum_of_squares_scratch(stream, squares));
  const DType dtype = squares.front().x.dtype();
  Operands reads({sums.tensor});
  int64_t count = 0, last = 0;
  for (const auto& [x, sum] : squares) {
    check_floating(kName, "x", x);
    check_argument(stream, kName, "x", x, accumulation_type(dtype), x.shape());
    check_contiguous(kName, "x", x);
    CHECK(sum >= last && sum < sums.tensor.count(), kName, ": sum ", sum, " of ", sums.tensor.count(), " after sum ",
          last);
    reads.add({x});
    count += x.count();
    last = sum;
  }
  launch(stream, kName, reads, {sums.tensor}, 2 * count, dtype,
         BodyTable{specification::sum_of_squares, fast::sum_of_squares, SHIFTRON_CUDA_BODY(sum_of_squares)}, squares,
         sums.tensor, scratch);
}

void sum_columns(Stream& stream, ConstTensor x, InOut sums, Tensor scratch) {
  constexpr const char* kName = "sum_columns";
  check_floating(kName, "x", x);
  check_dims(kName, "x", x, 2);
  check_argument(stream, kName, "x", x, accumulation_type(x.dtype()), x.shape());
  check_argument(stream, kName, "sums", sums.tensor, DType::float64, {x.extent(1)});
  check_scratch(stream, kName, scratch, DType::float64, sum_columns_scratch(stream, x.extent(0), x.extent(1)));
  launch(stream, kName, {x, sums.tensor}, {sums.tensor}, x.count(), x.dtype(),
         BodyTable{specification::sum_columns, nullptr, SHIFTRON_CUDA_BODY(sum_columns)}, x, sums.tensor, scratch);
}

}  // namespace shiftron
