// A stand-in for the part of cuDNN's backend that graphs of primitive operations use. It stores attributes and
// interprets the operations one by one in plain loops, rounding each value to the type of its tensor; of what a graph
// is for it knows nothing. What it does not know is an Error, never a guess; what it does not define does not link.
#include "cuda/dnn.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/sanitizer.h"
#include "cuda/injection.h"
#include "cuda/streams.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace shiftron::machine {
namespace {

constexpr int64_t kWorkspace = 4096;         // bytes that every plan asks for, and scribbles over
constexpr int64_t kMost = int64_t{1} << 30;  // elements of one value

struct Told {
  std::atomic<int64_t> executed{0}, living{0};
};
Told& told() {
  static Told value;
  return value;
}
cudnnStatus_t& refusal() {
  thread_local cudnnStatus_t value = CUDNN_STATUS_SUCCESS;
  return value;
}

template <typename... Parts>
void expect(bool condition, const Parts&... parts) {
  if (!condition) throw_crash("cuDNN's backend: ", parts...);
}

int64_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
      return 4;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      throw_crash("cuDNN's backend: attribute type ", int{type}, " is not interpreted");
  }
}

// What a descriptor may have, by its type; all of `needed` before it is finalised.
struct Known {
  std::vector<std::pair<int, cudnnBackendAttributeType_t>> needed, optional;
};
const Known& known(int type) {
  constexpr auto kPart = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  static const std::map<int, Known> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
         {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64}},
        {{CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN}, {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN}}}},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR, {{{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}}, {}}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_MATMUL_DESC, kPart},
         {CUDNN_ATTR_OPERATION_MATMUL_ADESC, kPart},
         {CUDNN_ATTR_OPERATION_MATMUL_BDESC, kPart},
         {CUDNN_ATTR_OPERATION_MATMUL_CDESC, kPart}},
        {}}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
         {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE}},
        {{CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64}}}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kPart},
         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kPart},
         {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kPart}},
        {{CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kPart}, {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kPart}}}},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
       {{{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
         {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}},
        {}}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_REDUCTION_DESC, kPart},
         {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kPart},
         {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kPart}},
        {}}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kPart}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kPart}}, {}}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{{CUDNN_ATTR_OPERATIONGRAPH_OPS, kPart}, {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE}}, {}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kPart}, {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE}}, {}}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kPart}, {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE}}, {}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64},
         {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR},
         {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}},
        {}}},
  };
  const auto found = all.find(type);
  expect(found != all.end(), "descriptors of type ", type, " are not interpreted");
  return found->second;
}

constexpr uint64_t kAlive = 0x6465736372;

struct Object {
  uint64_t mark = kAlive;
  int type = 0;
  bool finalized = false;
  std::map<int, std::vector<char>> attributes;
  const Object* graph = nullptr;  // of an engine configuration

  bool has(int name) const { return attributes.contains(name); }
  template <typename T>
  std::vector<T> list(int name) const {
    const auto found = attributes.find(name);
    expect(found != attributes.end(), "a descriptor of type ", type, " has no attribute ", name);
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <typename T>
  T get(int name) const {
    const std::vector<T> values = list<T>(name);
    expect(values.size() == 1, "attribute ", name, " of a descriptor of type ", type, " has ", values.size(),
           " values");
    return values.front();
  }
};

Object& object_of(cudnnBackendDescriptor_t descriptor) {
  expect(descriptor != nullptr, "no descriptor");
  auto& object = *static_cast<Object*>(descriptor);
  expect(object.mark == kAlive, "a descriptor that was destroyed, or never made");
  return object;
}
const Object& part_of(const Object& object, int name, int type) {
  const Object& part = object_of(object.get<cudnnBackendDescriptor_t>(name));
  expect(part.type == type && part.finalized, "attribute ", name, ": a part of type ", part.type,
         part.finalized ? "" : " that is not finalised", ", asked for ", type);
  return part;
}

using Dims = std::array<int64_t, 4>;

Dims dims_of(const Object& tensor, int name) {
  const std::vector<int64_t> values = tensor.list<int64_t>(name);
  expect(values.size() == 4, "a tensor of ", values.size(), " dims");
  return {values[0], values[1], values[2], values[3]};
}

struct Description {
  int64_t number = 0, alignment = 0;
  cudnnDataType_t type{};
  Dims dims{}, strides{};
  bool is_virtual = false, by_value = false;

  explicit Description(const Object& tensor)
      : number(tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        alignment(tensor.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
        type(tensor.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        dims(dims_of(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(dims_of(tensor, CUDNN_ATTR_TENSOR_STRIDES)),
        is_virtual(tensor.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && tensor.get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0),
        by_value(tensor.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && tensor.get<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0) {
    expect(*std::min_element(dims.begin(), dims.end()) > 0, "tensor ", number, " has an empty dim");
    expect(count() <= kMost, "tensor ", number, " has ", count(), " elements");
    expect(!by_value || (count() == 1 && type == CUDNN_DATA_FLOAT), "tensor ", number, " by value is no float");
  }
  int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t element_size() const { return type == CUDNN_DATA_BFLOAT16 ? 2 : 4; }
  int64_t offset(const Dims& at) const {
    return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
  }
  int64_t last_offset() const { return offset({dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1}); }
  size_t flat(const Dims& at) const {
    return static_cast<size_t>(((at[0] * dims[1] + at[1]) * dims[2] + at[2]) * dims[3] + at[3]);
  }
  template <typename Body>
  void for_each(Body body) const {
    Dims at{};
    for (at[0] = 0; at[0] < dims[0]; ++at[0])
      for (at[1] = 0; at[1] < dims[1]; ++at[1])
        for (at[2] = 0; at[2] < dims[2]; ++at[2])
          for (at[3] = 0; at[3] < dims[3]; ++at[3]) body(at);
  }
  double rounded(double value) const {
    switch (type) {
      case CUDNN_DATA_FLOAT:
        return static_cast<float>(value);
      case CUDNN_DATA_BFLOAT16:
        return __bfloat162float(__float2bfloat16_rn(static_cast<float>(value)));
      case CUDNN_DATA_INT32:
      case CUDNN_DATA_BOOLEAN:
        return value;
      default:
        throw_crash("cuDNN's backend: tensors of type ", int{type}, " are not interpreted");
    }
  }
};

// Where element `at` of a result finds its own of an operand with fewer: one for as many as follow each other.
Dims shrunk(const Dims& at, const Dims& from, const Dims& to) {
  Dims result{};
  for (size_t dim = 0; dim < 4; ++dim) result[dim] = at[dim] / (from[dim] / to[dim]);
  return result;
}
void expect_shrinks(const Description& from, const Description& to) {
  for (size_t dim = 0; dim < 4; ++dim) {
    expect(from.dims[dim] % to.dims[dim] == 0, "tensor ", to.number, " has ", to.dims[dim], " in dim ", dim,
           ", tensor ", from.number, " has ", from.dims[dim]);
  }
}
// As the library asks of operands of pointwise operations.
void expect_broadcast(const Description& from, const Description& to) {
  for (size_t dim = 0; dim < 4; ++dim) {
    expect(to.dims[dim] == 1 || from.dims[dim] == to.dims[dim], "tensor ", to.number, " has ", to.dims[dim], " in dim ",
           dim, ", tensor ", from.number, " has ", from.dims[dim]);
  }
}

// One execution: operations copied out of their descriptors, as the stream comes to them later.
class Run {
 public:
  Run(const Object& graph, std::map<int64_t, void*> memory, std::map<int64_t, float> numbers)
      : memory_(std::move(memory)), numbers_(std::move(numbers)) {
    for (const auto descriptor : graph.list<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      operations_.push_back(copy_of(object_of(descriptor)));
    }
  }

  void operator()() {
    values_.clear();
    for (const Operation& operation : operations_) operation(*this);
  }

 private:
  using Values = std::vector<double>;
  using Operation = std::function<void(Run&)>;

  static Description tensor(const Object& operation, int name) {
    return Description(part_of(operation, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  }

  static Operation copy_of(const Object& operation) {
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return matmul(operation);
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise(operation);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduction(operation);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return reshape(operation);
      default:
        throw_crash("cuDNN's backend: operation ", operation.type, " is not interpreted");
    }
  }

  static Operation matmul(const Object& operation) {
    const Description a = tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const Description b = tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    const Description c = tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    const Object& how = part_of(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    expect(how.get<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE) == CUDNN_DATA_FLOAT, "a product not in float32");
    expect(a.dims[2] == c.dims[2] && a.dims[3] == b.dims[2] && b.dims[3] == c.dims[3], "a product of ", a.dims[2],
           " x ", a.dims[3], " and ", b.dims[2], " x ", b.dims[3], " in ", c.dims[2], " x ", c.dims[3]);
    expect(a.type == b.type, "a product of two types");
    for (const Description& operand : {a, b}) {
      expect(c.dims[0] % operand.dims[0] == 0 && c.dims[1] % operand.dims[1] == 0, "products of tensor ",
             operand.number, " for more than there are");
    }
    return [=](Run& run) {
      const Values left = run.read(a), right = run.read(b);
      Values result(static_cast<size_t>(c.count()));
      c.for_each([&](const Dims& at) {
        float sum = 0;
        for (int64_t i = 0; i < a.dims[3]; ++i) {
          const Dims row = {at[0] / (c.dims[0] / a.dims[0]), at[1] / (c.dims[1] / a.dims[1]), at[2], i};
          const Dims column = {at[0] / (c.dims[0] / b.dims[0]), at[1] / (c.dims[1] / b.dims[1]), i, at[3]};
          sum += static_cast<float>(left[a.flat(row)]) * static_cast<float>(right[b.flat(column)]);
        }
        result[c.flat(at)] = sum;
      });
      run.write(c, std::move(result));
    };
  }

  static double apply(cudnnPointwiseMode_t mode, float x, float b) {
    switch (mode) {
      case CUDNN_POINTWISE_ADD:
        return x + b;
      case CUDNN_POINTWISE_SUB:
        return x - b;
      case CUDNN_POINTWISE_MUL:
        return x * b;
      case CUDNN_POINTWISE_DIV:
        return x / b;
      case CUDNN_POINTWISE_EXP:
        return std::exp(x);
      case CUDNN_POINTWISE_LOG:
        return std::log(x);
      case CUDNN_POINTWISE_IDENTITY:
        return x;
      case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1 : 0;
      case CUDNN_POINTWISE_CMP_GT:
        return x > b ? 1 : 0;
      case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0 && b != 0 ? 1 : 0;
      default:
        throw_crash("cuDNN's backend: pointwise mode ", int{mode}, " is not interpreted");
    }
  }
  static bool has_one_operand(cudnnPointwiseMode_t mode) {
    return mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG || mode == CUDNN_POINTWISE_IDENTITY ||
           mode == CUDNN_POINTWISE_GEN_INDEX;
  }
  // The type in which a mode may be asked for.
  static cudnnDataType_t computed_in(cudnnPointwiseMode_t mode) {
    if (mode == CUDNN_POINTWISE_GEN_INDEX) return CUDNN_DATA_INT32;
    const bool compares = mode == CUDNN_POINTWISE_CMP_GE || mode == CUDNN_POINTWISE_CMP_GT;
    return compares || mode == CUDNN_POINTWISE_LOGICAL_AND ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
  }

  static Operation pointwise(const Object& operation) {
    const Object& how =
        part_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const auto mode = how.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    expect(how.get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) == computed_in(mode), "mode ", int{mode},
           " in a type that is not its own");
    const Description x = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const Description y = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    expect((computed_in(mode) == CUDNN_DATA_FLOAT) == (y.type == CUDNN_DATA_FLOAT || y.type == CUDNN_DATA_BFLOAT16),
           "mode ", int{mode}, " gives another type than that of tensor ", y.number);
    expect_broadcast(y, x);
    const bool selects = mode == CUDNN_POINTWISE_BINARY_SELECT;
    expect(operation.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == !has_one_operand(mode) &&
               operation.has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC) == selects &&
               how.has(CUDNN_ATTR_POINTWISE_AXIS) == (mode == CUDNN_POINTWISE_GEN_INDEX),
           "mode ", int{mode}, " with other operands than its own");
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      const auto axis = static_cast<size_t>(how.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
      expect(axis < 4, "an index of dim ", axis);
      return [=](Run& run) {
        run.read(x);
        run.make(y, [&](const Dims& at) { return static_cast<double>(at[axis]); });
      };
    }
    const auto value = [](const Description& of, const Values& values, const Description& result, const Dims& at) {
      return static_cast<float>(values[of.flat(shrunk(at, result.dims, of.dims))]);
    };
    if (has_one_operand(mode)) {
      return [=](Run& run) {
        const Values of_x = run.read(x);
        run.make(y, [&](const Dims& at) { return apply(mode, value(x, of_x, y, at), 0); });
      };
    }
    const Description b = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    expect_broadcast(y, b);
    if (!selects) {
      return [=](Run& run) {
        const Values of_x = run.read(x), of_b = run.read(b);
        run.make(y, [&](const Dims& at) { return apply(mode, value(x, of_x, y, at), value(b, of_b, y, at)); });
      };
    }
    const Description condition = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    expect_broadcast(y, condition);
    expect(condition.type == CUDNN_DATA_BOOLEAN, "a selection by tensor ", condition.number, ", which is not boolean");
    return [=](Run& run) {
      const Values of_x = run.read(x), of_b = run.read(b), which = run.read(condition);
      run.make(y, [&](const Dims& at) {
        return value(condition, which, y, at) != 0 ? value(x, of_x, y, at) : value(b, of_b, y, at);
      });
    };
  }

  static Operation reduction(const Object& operation) {
    const Object& how = part_of(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const auto what = how.get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    expect(what == CUDNN_REDUCE_TENSOR_ADD || what == CUDNN_REDUCE_TENSOR_MAX, "reduction ", int{what},
           " is not interpreted");
    expect(how.get<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE) == CUDNN_DATA_FLOAT, "a reduction not in float32");
    const Description x = tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const Description y = tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    expect_shrinks(x, y);
    const bool adds = what == CUDNN_REDUCE_TENSOR_ADD;
    return [=](Run& run) {
      const Values from = run.read(x);
      Values result(static_cast<size_t>(y.count()), adds ? 0.0 : -std::numeric_limits<double>::infinity());
      x.for_each([&](const Dims& at) {
        double& to = result[y.flat(shrunk(at, x.dims, y.dims))];
        const double value = from[x.flat(at)];
        to = adds ? static_cast<float>(to) + static_cast<float>(value) : std::max(to, value);
      });
      run.write(y, std::move(result));
    };
  }

  // The elements of x where they lie, seen with the dims and strides of y.
  static Operation reshape(const Object& operation) {
    const Description x = tensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    const Description y = tensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    expect(x.count() == y.count() && x.last_offset() == y.last_offset(), "tensor ", y.number, " is no view of tensor ",
           x.number);
    return [=](Run& run) {
      const Values from = run.read(x);
      Values places(static_cast<size_t>(x.last_offset() + 1), std::numeric_limits<double>::quiet_NaN());
      x.for_each([&](const Dims& at) { places[static_cast<size_t>(x.offset(at))] = from[x.flat(at)]; });
      run.make(y, [&](const Dims& at) { return places[static_cast<size_t>(y.offset(at))]; });
    };
  }

  template <typename Element>
  void make(const Description& y, Element element) {
    Values result(static_cast<size_t>(y.count()));
    y.for_each([&](const Dims& at) { result[y.flat(at)] = element(at); });
    write(y, std::move(result));
  }

  char* place(const Description& of) const {
    const auto found = memory_.find(of.number);
    expect(found != memory_.end() && found->second != nullptr, "tensor ", of.number, " has no memory");
    expect(reinterpret_cast<uintptr_t>(found->second) % static_cast<uintptr_t>(of.alignment) == 0, "tensor ", of.number,
           " is not aligned to ", of.alignment, " bytes");
    return static_cast<char*>(found->second);
  }

  // A value that an operation before made, a number, or memory.
  Values read(const Description& of) {
    const auto made = values_.find(of.number);
    if (made != values_.end()) return made->second;
    expect(!of.is_virtual, "tensor ", of.number, " is read before it is made");
    if (of.by_value) {
      const auto found = numbers_.find(of.number);
      expect(found != numbers_.end(), "number ", of.number, " is not given");
      return {found->second};
    }
    const char* from = place(of);
    Values values(static_cast<size_t>(of.count()));
    of.for_each([&](const Dims& at) {
      const char* element = from + of.offset(at) * of.element_size();
      sanitizer::state_read(element, static_cast<size_t>(of.element_size()));
      double& value = values[of.flat(at)];
      if (of.type == CUDNN_DATA_BFLOAT16) {
        value = __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(element));
      } else if (of.type == CUDNN_DATA_INT32) {
        value = *reinterpret_cast<const int32_t*>(element);
      } else {
        expect(of.type == CUDNN_DATA_FLOAT, "memory of type ", int{of.type});
        value = *reinterpret_cast<const float*>(element);
      }
    });
    return values;
  }

  void write(const Description& of, Values values) {
    expect(!values_.contains(of.number), "tensor ", of.number, " is made twice");
    for (double& value : values) value = of.rounded(value);
    if (!of.is_virtual) {
      char* to = place(of);
      of.for_each([&](const Dims& at) {
        char* element = to + of.offset(at) * of.element_size();
        sanitizer::state_write(element, static_cast<size_t>(of.element_size()));
        const auto value = static_cast<float>(values[of.flat(at)]);
        if (of.type == CUDNN_DATA_BFLOAT16) {
          *reinterpret_cast<__nv_bfloat16*>(element) = __float2bfloat16_rn(value);
        } else {
          expect(of.type == CUDNN_DATA_FLOAT, "memory of type ", int{of.type});
          *reinterpret_cast<float*>(element) = value;
        }
      });
    }
    values_[of.number] = std::move(values);
  }

  std::vector<Operation> operations_;
  std::map<int64_t, void*> memory_;
  std::map<int64_t, float> numbers_;
  std::map<int64_t, Values> values_;
};

// Numbers of the tensors that are given by value: they are read at the call.
std::vector<int64_t> numbers_of(const Object& graph) {
  std::vector<int64_t> result;
  for (const auto descriptor : graph.list<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const auto& [name, bytes] : object_of(descriptor).attributes) {
      const Object& part = object_of(object_of(descriptor).get<cudnnBackendDescriptor_t>(name));
      if (part.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
      const Description tensor(part);
      if (tensor.by_value) result.push_back(tensor.number);
    }
  }
  return result;
}

}  // namespace

void refuse_next_plan(cudnnStatus_t status) {
  refusal() = status;
}
int64_t executed_plans() {
  return told().executed;
}
int64_t living_graph_objects() {
  return told().living;
}

}  // namespace shiftron::machine

using shiftron::machine::CallKind;
using shiftron::machine::expect;
using shiftron::machine::injected;
using shiftron::machine::injected_on_device;
using shiftron::machine::Object;
using shiftron::machine::object_of;
using shiftron::machine::told;

extern "C" {

size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
      return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "a status that a test asked for";
  }
}
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) message[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_NOT_INITIALIZED)) return told;
  *handle = new cudnnContext;
  ++told().living;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  --told().living;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_BAD_PARAM)) return told;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED))
    return told;
  shiftron::machine::known(type);
  auto* object = new Object;
  object->type = type;
  *descriptor = object;
  ++told().living;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  Object& object = object_of(descriptor);
  object.mark = 0;
  delete &object;
  --told().living;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_INTERNAL_ERROR)) return told;
  Object& object = object_of(descriptor);
  expect(!object.finalized, "attribute ", int{name}, " of a finalised descriptor");
  const auto& known = shiftron::machine::known(object.type);
  const std::pair<int, cudnnBackendAttributeType_t> attribute{name, type};
  const auto among = [&](const auto& some) { return std::find(some.begin(), some.end(), attribute) != some.end(); };
  expect(among(known.needed) || among(known.optional), "attribute ", int{name}, " of type ", int{type},
         " in a descriptor of type ", object.type, " is not interpreted");
  expect(count > 0 && values != nullptr, "attribute ", int{name}, " without values");
  const auto* bytes = static_cast<const char*>(values);
  object.attributes[name].assign(bytes, bytes + count * shiftron::machine::size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_NOT_SUPPORTED)) return told;
  Object& object = object_of(descriptor);
  expect(!object.finalized, "a descriptor of type ", object.type, " is finalised twice");
  for (const auto& [name, type] : shiftron::machine::known(object.type).needed) {
    expect(object.has(name), "a descriptor of type ", object.type, " without attribute ", name);
  }
  if (object.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) shiftron::machine::Description{object};
  if (object.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) shiftron::machine::Run(object, {}, {});
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const cudnnStatus_t status = std::exchange(shiftron::machine::refusal(), CUDNN_STATUS_SUCCESS);
    if (status != CUDNN_STATUS_SUCCESS) return status;
  }
  object.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t requested, int64_t* count, void* values) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_INTERNAL_ERROR)) return told;
  const Object& object = object_of(descriptor);
  expect(object.finalized, "attribute ", int{name}, " of a descriptor that is not finalised");
  *count = 1;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    if (requested == 0) return CUDNN_STATUS_SUCCESS;
    Object& configuration = object_of(*static_cast<cudnnBackendDescriptor_t*>(values));
    expect(configuration.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "results in a descriptor of type ",
           configuration.type);
    configuration.graph = &shiftron::machine::part_of(object, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                                      CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    configuration.finalized = true;
    return CUDNN_STATUS_SUCCESS;
  }
  expect(name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && requested == 1, "nobody asks for attribute ", int{name});
  *static_cast<int64_t*>(values) = shiftron::machine::kWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t descriptor,
                                  cudnnBackendDescriptor_t variant_pack) {
  if (const auto told = injected_on_device(CallKind::attention, __func__, CUDNN_STATUS_EXECUTION_FAILED)) return told;
  const Object& plan = object_of(descriptor);
  const Object& pack = object_of(variant_pack);
  expect(plan.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan.finalized &&
             pack.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && pack.finalized,
         "no plan, or no variant pack");
  const Object& graph =
      *shiftron::machine::part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
           .graph;
  const auto numbers = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  expect(numbers.size() == pointers.size(), numbers.size(), " numbers of tensors, ", pointers.size(), " pointers");
  std::map<int64_t, void*> memory;
  for (size_t i = 0; i < numbers.size(); ++i) memory[numbers[i]] = pointers[i];
  expect(memory.size() == numbers.size(), "a tensor is given twice");
  std::map<int64_t, float> by_value;
  for (const int64_t number : shiftron::machine::numbers_of(graph)) {
    expect(memory.contains(number), "number ", number, " is not given");
    by_value[number] = *static_cast<const float*>(memory.at(number));
  }
  auto* workspace = static_cast<float*>(pack.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  expect(workspace != nullptr, "no workspace");
  ++told().executed;
  shiftron::machine::Run run(graph, std::move(memory), std::move(by_value));
  shiftron::machine::run_in_stream(handle->stream, [run, workspace]() mutable {
    shiftron::sanitizer::state_write(workspace, shiftron::machine::kWorkspace);
    std::fill_n(workspace, shiftron::machine::kWorkspace / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    run();
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
