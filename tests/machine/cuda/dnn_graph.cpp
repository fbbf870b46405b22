// Graphs of primitive operations, interpreted one by one in plain loops, without knowing what a graph is for.
#include "cuda/dnn_graph.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/sanitizer.h"

namespace shiftron::machine {
namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // elements of one value

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
    if (type == CUDNN_DATA_FLOAT) return static_cast<float>(value);
    if (type == CUDNN_DATA_BFLOAT16) return __bfloat162float(__float2bfloat16_rn(static_cast<float>(value)));
    expect(type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN, "tensors of type ", int{type},
           " are not interpreted");
    return value;
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
  Run(const Object& graph, std::map<int64_t, void*> memory, std::map<int64_t, float> numbers, bool repeats)
      : memory_(std::move(memory)), numbers_(std::move(numbers)), repeats_(repeats) {
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
      const int64_t first = run.first_term(c, a.dims[3]);
      c.for_each([&](const Dims& at) {
        float sum = 0;
        for (int64_t term = 0; term < a.dims[3]; ++term) {
          const int64_t i = (term + first) % a.dims[3];
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

  // Sums of a product: additions to float32 memory come in any order, and with some engines all additions do.
  int64_t first_term(const Description& result, int64_t terms) const {
    static std::atomic<int64_t> products{0};
    const bool in_order = repeats_ && (result.is_virtual || result.type != CUDNN_DATA_FLOAT);
    return in_order ? 0 : ++products % terms;
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
  bool repeats_;
};

// Numbers of the tensors that are given by value: they are read at the call.
std::vector<int64_t> numbers_of(const Object& graph) {
  std::vector<int64_t> result;
  for (const auto descriptor : graph.list<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const auto& [name, bytes] : object_of(descriptor).attributes) {
      const Object& part = object_of(object_of(descriptor).get<cudnnBackendDescriptor_t>(name));
      if (part.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && Description(part).by_value) {
        result.push_back(part.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
      }
    }
  }
  return result;
}

}  // namespace

void check_tensor(const Object& tensor) {
  Description{tensor};
}

void check_graph(const Object& graph) {
  Run(graph, {}, {}, true);
}

std::function<void()> graph_run(const Object& graph, std::map<int64_t, void*> memory, bool repeats) {
  std::map<int64_t, float> by_value;
  for (const int64_t number : numbers_of(graph)) {
    expect(memory.contains(number), "number ", number, " is not given");
    by_value[number] = *static_cast<const float*>(memory.at(number));
  }
  return Run(graph, std::move(memory), std::move(by_value), repeats);
}

}  // namespace shiftron::machine
