// Descriptors of the emulated cuDNN backend: objects with attributes, which know the types of both.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/check.h"

namespace shiftron::machine {

template <typename... Parts>
void expect(bool condition, const Parts&... parts) {
  if (!condition) throw_crash("cuDNN's backend: ", parts...);
}

int64_t size_of(cudnnBackendAttributeType_t type);

// What a descriptor may have, by its type; all of `needed` before it is finalised.
struct Known {
  std::vector<std::pair<int, cudnnBackendAttributeType_t>> needed, optional;
};
const Known& known(int type);

// A graph's engine, set so.
struct EngineSetting {
  int64_t engine = 0;
  std::map<int64_t, int64_t> knobs;
  int64_t workspace = 0;  // bytes
  bool repeats = true;    // the same bits each time
};

constexpr uint64_t kAlive = 0x6465736372;

struct Object {
  uint64_t mark = kAlive;
  int type = 0;
  bool finalized = false;
  std::map<int, std::vector<char>> attributes;
  const Object* graph = nullptr;  // of an engine configuration, as the next
  EngineSetting setting;
  std::shared_ptr<char> life = std::make_shared<char>();

  bool has(int name) const { return attributes.contains(name); }
  const std::vector<char>& bytes_of(int name) const {
    const auto found = attributes.find(name);
    expect(found != attributes.end(), "a descriptor of type ", type, " has no attribute ", name);
    return found->second;
  }
  int64_t descriptors(int name) const {
    return static_cast<int64_t>(bytes_of(name).size() / sizeof(cudnnBackendDescriptor_t));
  }
  template <typename T>
  std::vector<T> list(int name) const {
    const std::vector<char>& bytes = bytes_of(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
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

inline Object& object_of(cudnnBackendDescriptor_t descriptor) {
  expect(descriptor != nullptr, "no descriptor");
  auto& object = *static_cast<Object*>(descriptor);
  expect(object.mark == kAlive, "a descriptor that was destroyed, or never made");
  return object;
}
inline const Object& part_of(const Object& object, int name, int type) {
  const Object& part = object_of(object.get<cudnnBackendDescriptor_t>(name));
  expect(part.type == type && part.finalized, "attribute ", name, ": a part of type ", part.type,
         part.finalized ? "" : " that is not finalised", ", asked for ", type);
  return part;
}

}  // namespace shiftron::machine
