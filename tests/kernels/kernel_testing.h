// What kernel tests share: tensors with own memory, random values, finite differences, and kernel calls as data that
// can be run with any type, body and device and compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "core/philox.h"
#include "kernels/element.h"
#include "kernels/kernels.h"

namespace shiftron::kernel_testing {

inline constexpr int kThreads = 2;

// A stream with its own ledger.
struct Device {
  explicit Device(DeviceKind device = DeviceKind::cpu, Bodies bodies = Bodies::specification) {
    stream.device = device;
    stream.ledger = &ledger;
    stream.cpu.threads = kThreads;
    stream.cpu.bodies = bodies;
    if (device == DeviceKind::cuda) stream.cuda = &context;
  }
  Device(const Device&) = delete;
  Ledger ledger;
  CudaContext context;
  Stream stream;
};

// Unit roundoff: largest relative error of one rounding to nearest.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::float64 ? 0x1p-53 : dtype == DType::float32 ? 0x1p-24 : 0x1p-8;
}

// Element number `flat` in row-major order.
template <typename T>
T& element(const Tensor& tensor, int64_t flat) {
  if (tensor.dims() == 0) return *tensor.data<T>();
  const int64_t last = tensor.extent(tensor.dims() - 1);
  return tensor.data<T>()[row_offset(tensor, flat / last) + flat % last];
}

inline double get(const Tensor& tensor, int64_t flat) {
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
      throw_crash("no test reads ", name_of(tensor.dtype()));
  }
}

inline void put(const Tensor& tensor, int64_t flat, double value) {
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
      throw_crash("no test writes ", name_of(tensor.dtype()));
  }
}

inline double rounded(double value, DType dtype) {
  if (dtype == DType::float64) return value;
  const float nearest = static_cast<float>(value);
  return dtype == DType::bfloat16 ? to_accumulate(to_bfloat16(nearest)) : nearest;
}

// Normal numbers that bfloat16 holds exactly, so that every type sees the same inputs.
inline std::vector<double> random_values(const std::string& name, int64_t count, double scale = 1, double mean = 0) {
  const Philox philox(7, name);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = rounded(mean + scale * philox.normal(i), DType::bfloat16);
  return values;
}

// A tensor with its own memory. `padding` foreign elements follow each row (all dims but the first). Every byte starts
// as 0xFF: NaN in the floating types.
class Owned {
 public:
  Owned() = default;
  explicit Owned(DType dtype, Shape shape, DeviceKind device = DeviceKind::cpu, int64_t padding = 0) {
    const int64_t rows = shape.dims() == 0 ? 1 : shape[0];
    int64_t width = 1;
    for (int dim = 1; dim < shape.dims(); ++dim) width *= shape[dim];
    if (shape.dims() < 2) padding = 0;
    const int64_t bytes = rows * (width + padding) * size_of(dtype);
    if (device != DeviceKind::meta) memory_.assign(static_cast<size_t>(bytes / 8 + 1), ~uint64_t{0});
    void* data = device != DeviceKind::meta ? memory_.data() : nullptr;
    if (padding == 0) {
      tensor_ = Tensor(data, dtype, shape, device);
    } else {
      tensor_ = Tensor(data, dtype, {rows, width + padding}, device).slice(1, 0, width);
      if (shape.dims() == 3) tensor_ = tensor_.split_last(shape[1], shape[2]);
      CHECK(tensor_.shape() == shape, "no padding for ", shape.text());
    }
    padding_ = padding;
  }
  Owned(DType dtype, Shape shape, const std::vector<double>& values) : Owned(dtype, shape) { set(values); }

  const Tensor& tensor() const { return tensor_; }
  operator Tensor() const { return tensor_; }
  operator ConstTensor() const { return tensor_; }
  double operator[](int64_t flat) const { return get(tensor_, flat); }

  void set(const std::vector<double>& values) {
    CHECK(static_cast<int64_t>(values.size()) == tensor_.count(), values.size(), " values for ",
          tensor_.shape().text());
    for (size_t i = 0; i < values.size(); ++i) put(tensor_, static_cast<int64_t>(i), values[i]);
  }
  std::vector<double> values() const {
    std::vector<double> result(static_cast<size_t>(tensor_.count()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = get(tensor_, static_cast<int64_t>(i));
    return result;
  }
  // Whether nobody wrote between the rows.
  bool padding_intact() const {
    const int64_t size = size_of(tensor_.dtype());
    for (int64_t row = 0; padding_ > 0 && row < tensor_.extent(0); ++row) {
      const auto* start = static_cast<const uint8_t*>(tensor_.raw()) + (row + 1) * tensor_.stride(0) * size;
      if (!std::all_of(start - padding_ * size, start, [](uint8_t byte) { return byte == 0xFF; })) return false;
    }
    return true;
  }

 private:
  std::vector<uint64_t> memory_;
  Tensor tensor_;
  int64_t padding_ = 0;
};

inline Owned random_tensor(const std::string& name, Shape shape, double scale = 1, double mean = 0) {
  return Owned(DType::float64, shape, random_values(name, shape.count(), scale, mean));
}
inline Owned zeros(Shape shape) {
  return Owned(DType::float64, shape, std::vector<double>(static_cast<size_t>(shape.count())));
}
inline Owned integers(const std::vector<int64_t>& values) {
  return Owned(DType::int32, {static_cast<int64_t>(values.size())}, std::vector<double>(values.begin(), values.end()));
}

// The call must throw an Error that says `text`.
inline void expect_fault(const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error, expected: " << text;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what() << "\nexpected: " << text;
  }
}

// ---- gradients ------------------------------------------------------------------------------------------------------
inline double weighted_sum(const Owned& y, const Owned& weights) {
  double sum = 0;
  for (int64_t i = 0; i < y.tensor().count(); ++i) sum += y[i] * weights[i];
  return sum;
}

// Holds `gradient` against central differences of fourth order of loss() by the elements of x. Truncation h⁴ and
// rounding 1e-16 / h balance near h = 1e-3; `tolerance` is relative to the largest element.
inline void expect_gradient(const char* name, const Owned& x, const std::vector<double>& gradient,
                            const std::function<double()>& loss, double tolerance = 1e-8) {
  ASSERT_EQ(static_cast<int64_t>(gradient.size()), x.tensor().count()) << name;
  constexpr double kStep = 1e-3;
  double largest = 1e-3;
  for (const double value : gradient) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < gradient.size(); ++i) {
    double& value = element<double>(x.tensor(), static_cast<int64_t>(i));
    const double before = value;
    const auto at = [&](double step) {
      value = before + step;
      return loss();
    };
    const double difference = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
    value = before;
    EXPECT_NEAR(gradient[i], difference, tolerance * largest) << name << " at " << i;
  }
}

// Documents of these lengths, one after another: the first row of each row's document, and its position in it.
struct Documents {
  explicit Documents(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
      const auto begin = static_cast<int64_t>(start.size());
      for (int64_t i = 0; i < length; ++i) {
        start.push_back(begin);
        position.push_back(i);
      }
    }
  }
  int64_t rows() const { return static_cast<int64_t>(start.size()); }
  std::vector<int64_t> start, position;
};

// ---- kernel calls as data -------------------------------------------------------------------------------------------
enum class Kind { activation, accumulation, float64, float32, bfloat16, int32, uint16 };
enum class Role { in, out, in_out, scratch };

struct Argument {
  std::string name;
  Kind kind = Kind::activation;
  Role role = Role::in;
  Shape shape;
  std::vector<double> values;  // of in and in_out
  double terms = 1;            // numbers summed into one element
  double magnitude = 0;        // size of the sums where results may cancel to less; the largest result counts too
  bool strided = true;         // may have padding between its rows
};

struct KernelCase {
  std::string name;
  std::vector<Argument> arguments;
  std::function<void(Stream&, const std::vector<Tensor>&)> run;
};
inline void PrintTo(const KernelCase& call, std::ostream* out) {
  *out << call.name;
}

inline DType type_of(Kind kind, DType activation) {
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

struct How {
  DType dtype = DType::float64;   // of activations
  DType inputs = DType::float64;  // to which the inputs are rounded first
  Bodies bodies = Bodies::specification;
  DeviceKind device = DeviceKind::cpu;
  int64_t padding = 0;
  int threads = kThreads;  // scratch of a call is made for kThreads
};

struct Outcome {
  std::vector<std::vector<double>> values;  // of each argument
  std::map<std::string, KernelCost, std::less<>> cost;
};

inline Outcome evaluate(const KernelCase& call, const How& how) {
  Device device(how.device, how.bodies);
  device.stream.cpu.threads = how.threads;
  std::vector<Owned> owned;
  std::vector<Tensor> tensors;
  for (const Argument& argument : call.arguments) {
    const DType dtype = type_of(argument.kind, how.dtype);
    owned.emplace_back(dtype, argument.shape, how.device, argument.strided ? how.padding : 0);
    if (how.device != DeviceKind::meta && (argument.role == Role::in || argument.role == Role::in_out)) {
      std::vector<double> values = argument.values;
      if (argument.kind == Kind::activation || argument.kind == Kind::accumulation) {
        for (double& value : values) value = rounded(value, type_of(argument.kind, how.inputs));
      }
      owned.back().set(values);
    }
    tensors.push_back(owned.back());
  }
  call.run(device.stream, tensors);
  Outcome outcome;
  outcome.cost = device.ledger.kernels();
  if (how.device == DeviceKind::meta) return outcome;
  for (size_t i = 0; i < owned.size(); ++i) {
    EXPECT_TRUE(owned[i].padding_intact()) << call.name << " wrote between the rows of " << call.arguments[i].name;
    outcome.values.push_back(owned[i].values());
  }
  return outcome;
}

inline bool is_result(const Argument& argument) {
  return argument.role == Role::out || argument.role == Role::in_out;
}

inline double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Infinity where one of the two is not finite and the other differs.
inline double largest_error(const std::vector<double>& values, const std::vector<double>& reference) {
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == reference[i]) continue;
    const double error = std::abs(values[i] - reference[i]);
    largest = std::max(largest, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  return largest;
}

// Rounding errors of a result: one rounding when it is stored, a few (function values, products) and `summed` (of its
// sum) in the type of sums; each relative to the size of the sums.
inline double rounding_error(const Argument& argument, DType dtype, const std::vector<double>& reference,
                             double summed) {
  if (argument.kind == Kind::uint16) return 0;
  const double magnitude = std::max(largest_magnitude(reference), argument.magnitude);
  const double in_sums = argument.kind == Kind::float64 ? 0x1p-53 : unit_roundoff(accumulation_type(dtype));
  return (unit_roundoff(type_of(argument.kind, dtype)) + (8 + summed) * in_sums) * magnitude;
}

// The specification in `dtype` against itself in float64: a sum of n terms in order rounds at most n times.
inline void expect_specification_rounds_well(const KernelCase& call, DType dtype) {
  const Outcome reference = evaluate(call, {.inputs = dtype});
  const Outcome result = evaluate(call, {.dtype = dtype, .inputs = dtype});
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    if (!is_result(argument)) continue;
    EXPECT_LE(largest_error(result.values[i], reference.values[i]),
              rounding_error(argument, dtype, reference.values[i], argument.terms))
        << call.name << " " << name_of(dtype) << ": " << argument.name;
  }
}

// What a fast body gave for inputs of its type against the float64 specification: at most twice the error of the
// specification in the same type, or of the floor: n roundings of random sign add up to √n.
inline void expect_outcome_matches_specification(const KernelCase& call, DType dtype, int64_t padding,
                                                 const Outcome& fast) {
  const Outcome reference = evaluate(call, {.inputs = dtype, .padding = padding});
  const Outcome specification = evaluate(call, {.dtype = dtype, .inputs = dtype, .padding = padding});
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    if (!is_result(argument)) continue;
    const double own = largest_error(specification.values[i], reference.values[i]);
    const double floor = rounding_error(argument, dtype, reference.values[i], std::sqrt(argument.terms));
    EXPECT_LE(largest_error(fast.values[i], reference.values[i]), 2 * std::max(own, floor))
        << call.name << " " << name_of(dtype) << ", padding " << padding << ": " << argument.name
        << "; specification's error " << own << ", floor " << floor;
  }
}

// The same of the body of a device.
inline void expect_fast_matches_specification(const KernelCase& call, DType dtype, int64_t padding,
                                              DeviceKind device = DeviceKind::cpu) {
  const How how{.dtype = dtype, .inputs = dtype, .bodies = Bodies::fast, .device = device, .padding = padding};
  expect_outcome_matches_specification(call, dtype, padding, evaluate(call, how));
}

}  // namespace shiftron::kernel_testing
