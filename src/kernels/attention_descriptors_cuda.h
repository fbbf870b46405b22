// Descriptors of cuDNN's backend, as attention's graphs and plans are made of them.
#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <string>
#include <vector>

#include "core/check.h"

namespace shiftron::cuda {

// A descriptor, destroyed with its owner.
struct DestroyDescriptor {
  void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// What the library does not serve; other failures of it are Errors alone.
struct Unserved : Error {
  explicit Unserved(const std::string& message) : Error(message, ExitCode::crash) {}
};

// Throws what cuDNN says of a failed call, with the call and what it was for.
void check_dnn(cudnnStatus_t status, const char* call, const std::string& about);

// Makes descriptors, which `kept` owns. Error with `about` where the library refuses.
class Maker {
 public:
  Maker(std::vector<Descriptor>& kept, std::string about) : kept_(kept), about_(std::move(about)) {}

  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    check_dnn(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor", about_);
    kept_.emplace_back(made);
    return made;
  }
  void finalize(cudnnBackendDescriptor_t descriptor) {
    check_dnn(cudnnBackendFinalize(descriptor), "cudnnBackendFinalize", about_);
  }
  void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const void* values, int64_t count = 1) {
    check_dnn(cudnnBackendSetAttribute(descriptor, name, type, count, values), "cudnnBackendSetAttribute", about_);
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

  // Writes the first `count` values; how many there are, of which the library may tell no more than `count`.
  int64_t get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t count, void* values) {
    int64_t found = 0;
    check_dnn(cudnnBackendGetAttribute(descriptor, name, type, count, &found, values), "cudnnBackendGetAttribute",
              about_);
    return found;
  }
  int64_t get_number(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
    int64_t value = 0;
    get(descriptor, name, CUDNN_TYPE_INT64, 1, &value);
    return value;
  }
  // At most `most` parts of one type.
  std::vector<cudnnBackendDescriptor_t> get_parts(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                  cudnnBackendDescriptorType_t type, int64_t most) {
    std::vector<cudnnBackendDescriptor_t> parts;
    for (int64_t i = 0; i < most; ++i) parts.push_back(make(type));
    parts.resize(static_cast<size_t>(get(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, parts.data())));
    return parts;
  }

 private:
  std::vector<Descriptor>& kept_;
  std::string about_;
};

}  // namespace shiftron::cuda
