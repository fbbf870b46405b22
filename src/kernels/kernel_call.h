// Kernel calls as data: they run in any type, body and device, and their outcomes are compared. For tests and the
// self-test.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron::kernel_testing {

inline constexpr int kThreads = 2;

// A stream on the host or on meta, with its own ledger.
struct Device {
  explicit Device(DeviceKind device = DeviceKind::cpu, Bodies bodies = Bodies::specification);
  Device(const Device&) = delete;
  Ledger ledger;
  Stream stream;
};

double unit_roundoff(DType dtype);  // largest relative error of one rounding to nearest
double rounded(double value, DType dtype);
// Normally distributed numbers that bfloat16 holds exactly, so that every type sees the same inputs.
std::vector<double> random_values(const std::string& name, int64_t count, double scale = 1, double mean = 0);

// Element number `flat` in row-major order.
template <typename T>
T& element(const Tensor& tensor, int64_t flat) {
  if (tensor.dims() == 0) return *tensor.data<T>();
  const int64_t last = tensor.extent(tensor.dims() - 1);
  return tensor.data<T>()[row_offset(tensor, flat / last) + flat % last];
}
double get(const Tensor& tensor, int64_t flat);
void put(const Tensor& tensor, int64_t flat, double value);

// A tensor with its own host memory. Each row (all dims but the first) is followed by `padding` elements that do not
// belong to it. Every byte starts as 0xFF: NaN in the floating types.
class Owned {
 public:
  Owned() = default;
  explicit Owned(DType dtype, Shape shape, DeviceKind device = DeviceKind::cpu, int64_t padding = 0);
  Owned(DType dtype, Shape shape, const std::vector<double>& values) : Owned(dtype, shape) { set(values); }

  const Tensor& tensor() const { return tensor_; }
  operator Tensor() const { return tensor_; }
  operator ConstTensor() const { return tensor_; }
  double operator[](int64_t flat) const { return get(tensor_, flat); }

  void set(const std::vector<double>& values);
  std::vector<double> values() const;
  bool padding_intact() const;  // nothing was written between the rows
  // All bytes, including those between the rows, as [bytes] uint8; and the tensor as if it started at `start`.
  Tensor bytes() const;
  Tensor placed(const Tensor& start) const;

 private:
  std::vector<uint64_t> memory_;
  Tensor tensor_;
  int64_t padding_ = 0;
};

Owned zeros(Shape shape);

// A copy of a host tensor on the stream's device, with all of its bytes: those that nothing writes are 0xFF there too.
class DeviceTensor {
 public:
  DeviceTensor(Stream& stream, const Owned& host);  // which must not move and must outlive it
  const Tensor& tensor() const { return tensor_; }
  operator Tensor() const { return tensor_; }
  operator ConstTensor() const { return tensor_; }
  void fetch() const;  // copies the device's values to the host tensor; waits

 private:
  Stream& stream_;
  Tensor host_;
  Buffer device_, staging_;
  Tensor pinned_, there_, tensor_;
};

// Documents of these lengths, one after another: the first row of each row's document, and its position in it.
struct DocumentRows {
  explicit DocumentRows(const std::vector<int64_t>& lengths);
  int64_t rows() const { return static_cast<int64_t>(start.size()); }
  std::vector<int64_t> start, position;
};

enum class Kind { activation, accumulation, float64, float32, bfloat16, int32, uint16 };
enum class Role { in, out, in_out, scratch };

struct Argument {
  std::string name;
  Kind kind = Kind::activation;
  Role role = Role::in;
  Shape shape;
  std::vector<double> values;  // for in and in_out
  double terms = 1;            // numbers summed into one element
  double magnitude = 0;        // size of the sums, if results may cancel to less; the largest result counts too
  bool strided = true;         // may have padding between its rows
};
bool is_result(const Argument& argument);

struct KernelCase {
  std::string name;
  std::vector<Argument> arguments;
  std::function<void(Stream&, const std::vector<Tensor>&)> run;
};
inline void PrintTo(const KernelCase& call, std::ostream* out) {
  *out << call.name;
}

DType type_of(Kind kind, DType activation);

struct How {
  DType dtype = DType::float64;   // of the activations
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

// On the host or on meta. Throws an Error if the call wrote between rows.
Outcome evaluate(const KernelCase& call, const How& how);
// On the stream, whatever its device; waits.
Outcome evaluate_in(Stream& stream, const KernelCase& call, DType dtype, DType inputs, int64_t padding);

double largest_magnitude(const std::vector<double>& values);
// Infinity if one of the two values is not finite and the other one differs.
double largest_error(const std::vector<double>& values, const std::vector<double>& reference);
// Expected rounding errors of a result: one rounding when it is stored, a few (function values, products) and `summed`
// (of its sum) in the accumulation type; each relative to the size of the sums.
double rounding_error(const Argument& argument, DType dtype, const std::vector<double>& reference, double summed);

// One result of a fast body, given inputs of its type, compared with the float64 reference implementation.
struct Comparison {
  std::string argument;
  double error = 0;                               // the largest
  double bound = 0;                               // twice the larger of `own` and `floor`
  double own = 0;                                 // error of the reference implementation in the same type
  double floor = 0;                               // rounding_error() if n roundings of random sign add up to √n
  double magnitude = 0;                           // largest of the reference values
  bool passed() const { return error <= bound; }  // false for NaN
};
std::vector<Comparison> compare(const KernelCase& call, DType dtype, int64_t padding, const Outcome& fast);

}  // namespace shiftron::kernel_testing
