// Tensors of a call, the call itself, and the errors that its outcome may have.
#include "kernels/kernel_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/event.h"
#include "core/philox.h"
#include "kernels/element.h"
#include "kernels/kernels.h"

namespace shiftron::kernel_testing {

Device::Device(DeviceKind device, Bodies bodies) {
  stream.device = device;
  stream.ledger = &ledger;
  stream.cpu.threads = kThreads;
  stream.cpu.bodies = bodies;
}

double unit_roundoff(DType dtype) {
  return dtype == DType::float64 ? 0x1p-53 : dtype == DType::float32 ? 0x1p-24 : 0x1p-8;
}

double rounded(double value, DType dtype) {
  if (dtype == DType::float64) return value;
  const float nearest = static_cast<float>(value);
  return dtype == DType::bfloat16 ? to_accumulate(to_bfloat16(nearest)) : nearest;
}

std::vector<double> random_values(const std::string& name, int64_t count, double scale, double mean) {
  const Philox philox(7, name);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = rounded(mean + scale * philox.normal(i), DType::bfloat16);
  return values;
}

double get(const Tensor& tensor, int64_t flat) {
  switch (tensor.dtype()) {
    case DType::float64:
      return element<double>(tensor, flat);
    case DType::float32:
      return element<float>(tensor, flat);
    case DType::bfloat16:
      return to_accumulate(element<bfloat16>(tensor, flat));
    case DType::int32:
      return element<int32_t>(tensor, flat);
    case DType::uint16:
      return element<uint16_t>(tensor, flat);
    default:
      throw_crash("kernel calls cannot read ", name_of(tensor.dtype()));
  }
}

void put(const Tensor& tensor, int64_t flat, double value) {
  switch (tensor.dtype()) {
    case DType::float64:
      element<double>(tensor, flat) = value;
      return;
    case DType::float32:
      element<float>(tensor, flat) = static_cast<float>(value);
      return;
    case DType::bfloat16:
      element<bfloat16>(tensor, flat) = to_bfloat16(static_cast<float>(value));
      return;
    case DType::int32:
      element<int32_t>(tensor, flat) = static_cast<int32_t>(value);
      return;
    case DType::uint16:
      element<uint16_t>(tensor, flat) = static_cast<uint16_t>(value);
      return;
    default:
      throw_crash("kernel calls cannot write ", name_of(tensor.dtype()));
  }
}

Owned::Owned(DType dtype, Shape shape, DeviceKind device, int64_t padding)
    : tensor_(nullptr, dtype, shape, device), padding_(shape.dims() < 2 ? 0 : padding) {
  if (device == DeviceKind::meta) {
    tensor_ = placed(Tensor(nullptr, DType::uint8, {}, device));
    return;
  }
  const int64_t rows = shape.dims() == 0 ? 1 : shape[0];
  const int64_t bytes = (shape.count() + rows * padding_) * size_of(dtype);
  memory_.assign(static_cast<size_t>(bytes / 8 + 1), ~uint64_t{0});
  tensor_ = placed(Tensor(memory_.data(), DType::uint8, {bytes}, device));
}

Tensor Owned::placed(const Tensor& start) const {
  const Shape shape = tensor_.shape();
  if (padding_ == 0) return Tensor(start.raw(), tensor_.dtype(), shape, start.device());
  int64_t width = 1;
  for (int dim = 1; dim < shape.dims(); ++dim) width *= shape[dim];
  const Tensor rows =
      Tensor(start.raw(), tensor_.dtype(), {shape[0], width + padding_}, start.device()).slice(1, 0, width);
  const Tensor placed = shape.dims() == 3 ? rows.split_last(shape[1], shape[2]) : rows;
  CHECK(placed.shape() == shape, "no padding for ", shape.text());
  return placed;
}

Tensor Owned::bytes() const {
  const int64_t rows = tensor_.dims() == 0 ? 1 : tensor_.extent(0);
  const int64_t bytes = (tensor_.count() + rows * padding_) * size_of(tensor_.dtype());
  return Tensor(tensor_.raw(), DType::uint8, {bytes}, tensor_.device());
}

void Owned::set(const std::vector<double>& values) {
  CHECK(static_cast<int64_t>(values.size()) == tensor_.count(), values.size(), " values for ", tensor_.shape().text());
  for (size_t i = 0; i < values.size(); ++i) put(tensor_, static_cast<int64_t>(i), values[i]);
}

std::vector<double> Owned::values() const {
  std::vector<double> result(static_cast<size_t>(tensor_.count()));
  for (size_t i = 0; i < result.size(); ++i) result[i] = get(tensor_, static_cast<int64_t>(i));
  return result;
}

bool Owned::padding_intact() const {
  const int64_t size = size_of(tensor_.dtype());
  for (int64_t row = 0; padding_ > 0 && row < tensor_.extent(0); ++row) {
    const auto* start = static_cast<const uint8_t*>(tensor_.raw()) + (row + 1) * tensor_.stride(0) * size;
    if (!std::all_of(start - padding_ * size, start, [](uint8_t byte) { return byte == 0xFF; })) return false;
  }
  return true;
}

Owned zeros(Shape shape) {
  return Owned(DType::float64, shape, std::vector<double>(static_cast<size_t>(shape.count())));
}

DeviceTensor::DeviceTensor(Stream& stream, const Owned& host)
    : stream_(stream),
      host_(host.bytes()),
      device_(stream.device, host_.count(), *stream.ledger, "tensors"),
      staging_(staging_buffer(stream, host_.count())),
      pinned_(staging_.tensor(0, DType::uint8, host_.shape())),
      there_(device_.tensor(0, DType::uint8, host_.shape())),
      tensor_(host.placed(there_)) {
  if (host_.count() == 0) return;
  std::memcpy(pinned_.raw(), host_.raw(), static_cast<size_t>(host_.count()));
  upload(stream_, pinned_, there_);
}

void DeviceTensor::fetch() const {
  if (host_.count() == 0) return;
  download(stream_, there_, pinned_);
  finish(stream_);
  std::memcpy(host_.raw(), pinned_.raw(), static_cast<size_t>(host_.count()));
}

DocumentRows::DocumentRows(const std::vector<int64_t>& lengths) {
  for (const int64_t length : lengths) {
    const auto begin = static_cast<int64_t>(start.size());
    for (int64_t i = 0; i < length; ++i) {
      start.push_back(begin);
      position.push_back(i);
    }
  }
}

bool is_result(const Argument& argument) {
  return argument.role == Role::out || argument.role == Role::in_out;
}

DType type_of(Kind kind, DType activation) {
  switch (kind) {
    case Kind::activation:
      return activation;
    case Kind::accumulation:
      return accumulation_type(activation);
    case Kind::float64:
      return DType::float64;
    case Kind::float32:
      return DType::float32;
    case Kind::bfloat16:
      return DType::bfloat16;
    case Kind::int32:
      return DType::int32;
    case Kind::uint16:
      return DType::uint16;
  }
  return activation;
}

Outcome evaluate_in(Stream& stream, const KernelCase& call, DType dtype, DType inputs, int64_t padding) {
  const DeviceKind host = stream.device == DeviceKind::meta ? DeviceKind::meta : DeviceKind::cpu;
  std::vector<Owned> owned;
  std::vector<Tensor> tensors;
  for (const Argument& argument : call.arguments) {
    owned.emplace_back(type_of(argument.kind, dtype), argument.shape, host, argument.strided ? padding : 0);
    if (host == DeviceKind::cpu && (argument.role == Role::in || argument.role == Role::in_out)) {
      std::vector<double> values = argument.values;
      if (argument.kind == Kind::activation || argument.kind == Kind::accumulation) {
        for (double& value : values) value = rounded(value, type_of(argument.kind, inputs));
      }
      owned.back().set(values);
    }
    tensors.push_back(owned.back());
  }
  std::vector<std::unique_ptr<DeviceTensor>> copies;
  if (stream.device == DeviceKind::cuda) {
    for (size_t i = 0; i < owned.size(); ++i) {
      copies.push_back(std::make_unique<DeviceTensor>(stream, owned[i]));
      tensors[i] = copies.back()->tensor();
    }
  }
  call.run(stream, tensors);
  finish(stream);
  Outcome outcome;
  if (host == DeviceKind::meta) return outcome;
  for (const auto& copy : copies) copy->fetch();
  for (size_t i = 0; i < owned.size(); ++i) {
    if (!owned[i].padding_intact()) throw_crash(call.name, " wrote between the rows of ", call.arguments[i].name);
    outcome.values.push_back(owned[i].values());
  }
  return outcome;
}

Outcome evaluate(const KernelCase& call, const How& how) {
  Device device(how.device, how.bodies);
  device.stream.cpu.threads = how.threads;
  Outcome outcome = evaluate_in(device.stream, call, how.dtype, how.inputs, how.padding);
  outcome.cost = device.ledger.kernels();
  return outcome;
}

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double largest_error(const std::vector<double>& values, const std::vector<double>& reference) {
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == reference[i]) continue;
    const double error = std::abs(values[i] - reference[i]);
    largest = std::max(largest, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  return largest;
}

double rounding_error(const Argument& argument, DType dtype, const std::vector<double>& reference, double summed) {
  if (argument.kind == Kind::uint16) return 0;
  const double magnitude = std::max(largest_magnitude(reference), argument.magnitude);
  const double in_sums = argument.kind == Kind::float64 ? 0x1p-53 : unit_roundoff(accumulation_type(dtype));
  return (unit_roundoff(type_of(argument.kind, dtype)) + (8 + summed) * in_sums) * magnitude;
}

std::vector<Comparison> compare(const KernelCase& call, DType dtype, int64_t padding, const Outcome& fast) {
  const Outcome reference = evaluate(call, {.inputs = dtype, .padding = padding});
  const Outcome specification = evaluate(call, {.dtype = dtype, .inputs = dtype, .padding = padding});
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    if (!is_result(argument)) continue;
    Comparison found{.argument = argument.name};
    found.own = largest_error(specification.values[i], reference.values[i]);
    found.floor = rounding_error(argument, dtype, reference.values[i], std::sqrt(argument.terms));
    found.error = largest_error(fast.values[i], reference.values[i]);
    found.bound = 2 * std::max(found.own, found.floor);
    found.magnitude = largest_magnitude(reference.values[i]);
    comparisons.push_back(found);
  }
  return comparisons;
}

}  // namespace shiftron::kernel_testing
