// Front ends refuse arguments that do not fit the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/check.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

// Nothing runs on meta but the checks.
bool is_refused(const KernelCase& call, size_t changed, const Shape& shape, DType dtype,
                DeviceKind device = DeviceKind::meta) {
  Device meta(DeviceKind::meta);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    tensors.push_back(i == changed
                          ? Owned(dtype, shape, device).tensor()
                          : Owned(type_of(argument.kind, DType::float32), argument.shape, DeviceKind::meta).tensor());
  }
  try {
    call.run(meta.stream, tensors);
  } catch (const Error&) {
    return true;
  }
  return false;
}

// Kernels and arguments whose extent no other argument determines: lists of any length, parts of a vocabulary, tables
// that may have more rows, streams without shift or rotation.
bool is_free(const std::string& kernel, const std::string& argument, int dim) {
  for (const char* any : {"adamw", "fill_zero", "rope_table", "shift_rope", "sum_of_squares"}) {
    if (kernel.starts_with(any)) return true;
  }
  const bool of_vocabulary =
      argument == "logits" || argument == "table" || argument == "d_table" || argument == "statistics";
  return (of_vocabulary && dim == (argument == "logits" ? 1 : 0)) ||
         (kernel.starts_with("sum_columns") && argument == "x" && dim == 0) ||
         (kernel == "update_scalars" && argument == "sums");
}

TEST(Refusal, OfEveryArgumentOfAnotherShapeOrType) {
  std::set<std::string> taken;
  for (const KernelCase& call : all_cases()) {
    const std::string kernel = call.name.substr(0, std::min(call.name.find_first_of("0123456789"), call.name.size()));
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const Argument& argument = call.arguments[i];
      if (argument.role == Role::scratch || argument.shape.dims() == 0) continue;
      for (int dim = 0; dim < argument.shape.dims(); ++dim) {
        if (is_free(kernel, argument.name, dim)) continue;
        Shape longer;
        for (int each = 0; each < argument.shape.dims(); ++each) {
          longer.append(argument.shape[each] + (each == dim ? 1 : 0));
        }
        if (!is_refused(call, i, longer, type_of(argument.kind, DType::float32))) {
          taken.insert(call.name + ", " + argument.name + ", dim " + std::to_string(dim));
        }
      }
      const bool optional = kernel.starts_with("fill_zero") || kernel.starts_with("shift_rope");
      if (!optional && !is_refused(call, i, argument.shape, DType::uint8)) {
        taken.insert(call.name + ", " + argument.name + ", type");
      }
    }
  }
  for (const std::string& one : taken) ADD_FAILURE() << "taken: " << one;
}

TEST(Refusal, OfEveryArgumentOnAnotherDevice) {
  std::set<std::string> taken;
  for (const KernelCase& call : all_cases()) {
    if (call.name.starts_with("shift_rope")) continue;  // some of its arguments are unused in some cases
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const Argument& argument = call.arguments[i];
      if (argument.role == Role::scratch) continue;
      if (!is_refused(call, i, argument.shape, type_of(argument.kind, DType::float32), DeviceKind::cpu)) {
        taken.insert(call.name + ", " + argument.name);
      }
    }
  }
  for (const std::string& one : taken) ADD_FAILURE() << "taken: " << one;
}

}  // namespace
}  // namespace shiftron::kernel_testing
