// Descriptors of cuDNN's backend, from which attention's graphs and plans are built.
#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "kernels/attention_choices.h"

namespace shiftron::cuda {

// A descriptor, destroyed with its owner.
struct DestroyDescriptor {
  void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// Something that the library does not support. Its other failures are plain Errors.
struct UnsupportedProblem : Error {
  explicit UnsupportedProblem(const std::string& message) : Error(message, ExitCode::crash) {}
};

// A plan that was built but failed when it was executed.
struct FailedExecution : Error {
  explicit FailedExecution(const std::string& message) : Error(message, ExitCode::crash) {}
};

// Throws cuDNN's message about a failed call, with the call and what it was for.
[[noreturn]] void throw_dnn(cudnnStatus_t status, const char* call, const std::string& about);
inline void check_dnn(cudnnStatus_t status, const char* call, const AttentionProblem& problem) {
  if (status != CUDNN_STATUS_SUCCESS) throw_dnn(status, call, problem.text());
}

// Makes descriptors, which `kept` owns, for a problem that outlives it. Throws an Error with the problem if the library
// refuses.
class Maker {
 public:
  Maker(std::vector<Descriptor>& kept, const AttentionProblem& problem) : kept_(kept), problem_(problem) {}

  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    check_dnn(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor", problem_);
    kept_.emplace_back(made);
    return made;
  }
  void finalize(cudnnBackendDescriptor_t descriptor) {
    check_dnn(cudnnBackendFinalize(descriptor), "cudnnBackendFinalize", problem_);
  }
  void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const void* values, int64_t count = 1) {
    check_dnn(cudnnBackendSetAttribute(descriptor, name, type, count, values), "cudnnBackendSetAttribute", problem_);
  }
  void set_number(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, int64_t value) {
    set(descriptor, name, CUDNN_TYPE_INT64, &value);
  }
  void set_type(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(descriptor, name, CUDNN_TYPE_DATA_TYPE, &value);
  }
  void set_part(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t part) {
    set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &part);
  }

  // Writes the first `count` values and returns how many there are; the library may report no more than `count`.
  int64_t get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t count, void* values) {
    int64_t found = 0;
    check_dnn(cudnnBackendGetAttribute(descriptor, name, type, count, &found, values), "cudnnBackendGetAttribute",
              problem_);
    return found;
  }
  int64_t get_number(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
    int64_t value = 0;
    get(descriptor, name, CUDNN_TYPE_INT64, 1, &value);
    return value;
  }
  // At most `most` parts, all of one type.
  std::vector<cudnnBackendDescriptor_t> get_parts(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                  cudnnBackendDescriptorType_t type, int64_t most) {
    std::vector<cudnnBackendDescriptor_t> parts;
    for (int64_t i = 0; i < most; ++i) parts.push_back(make(type));
    parts.resize(static_cast<size_t>(get(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, parts.data())));
    return parts;
  }

 private:
  std::vector<Descriptor>& kept_;
  const AttentionProblem& problem_;
};

}  // namespace shiftron::cuda
