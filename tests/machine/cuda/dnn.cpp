// Emulates the part of cuDNN's backend that attention uses. It stores attributes (dnn_descriptor.h), offers its own
// engines, and interprets graphs (dnn_graph.h). Unknown input is an Error, never a guess; undefined functions do not
// link.
#include "cuda/dnn.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/sanitizer.h"
#include "cuda/dnn_graph.h"
#include "cuda/injection.h"
#include "cuda/streams.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace shiftron::machine {
namespace {

struct Told {
  std::atomic<int64_t> finalized{0}, executed{0}, living{0};
  std::atomic<int64_t> delayed_engine{0}, delay{0}, failing_engine{0};
  std::atomic<cudnnStatus_t> failure{CUDNN_STATUS_SUCCESS};
  std::atomic<size_t> version{0};
};
Told& told() {
  static Told value;
  return value;
}
std::pair<int, cudnnStatus_t>& refusal() {
  thread_local std::pair<int, cudnnStatus_t> value{0, CUDNN_STATUS_SUCCESS};
  return value;
}

// Of each graph there are other ones, by the number of its operations, and the better ones do not repeat their bits. A
// workspace is scribbled over.
std::vector<EngineSetting> offered(const Object& graph, cudnnBackendHeurMode_t mode) {
  const int64_t operations = graph.descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {{.engine = 2, .knobs = {}, .workspace = 8192}};
  expect(mode == CUDNN_HEUR_MODE_A, "heuristics of mode ", int{mode});
  return {{.engine = 1, .knobs = {{CUDNN_KNOB_TYPE_KERNEL_CFG, operations}}, .workspace = 4096, .repeats = false},
          {.engine = 2, .knobs = {{CUDNN_KNOB_TYPE_KERNEL_CFG, operations + 1}}, .workspace = 8192}};
}
std::vector<EngineSetting> all_offered(const Object& graph) {
  std::vector<EngineSetting> all = offered(graph, CUDNN_HEUR_MODE_A);
  for (const EngineSetting& fallback : offered(graph, CUDNN_HEUR_MODE_FALLBACK)) all.push_back(fallback);
  return all;
}

// What the library says where an engine, a configuration or a plan is finalised; others are none of its business.
cudnnStatus_t engine_status(Object& object) {
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && refusal().first > 0) {
    --refusal().first;
    return refusal().second;
  }
  const bool configures = object.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  if (!configures && object.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
  const Object& engine =
      configures ? part_of(object, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR) : object;
  const auto number = engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  std::map<int64_t, int64_t> knobs;
  if (object.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    for (const auto descriptor : object.list<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
      const Object& knob = object_of(descriptor);
      expect(knob.type == CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR && knob.finalized, "a knob that is none");
      knobs[knob.get<int32_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] = knob.get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    }
  }
  const Object& graph = part_of(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  for (const EngineSetting& setting : all_offered(graph)) {
    if (setting.engine != number || (configures && setting.knobs != knobs)) continue;
    object.graph = &graph;
    object.setting = setting;
    return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

template <typename T>
int64_t give(void* values, int64_t requested, const T& value) {
  expect(requested == 1, requested, " values are asked for, there is one");
  *static_cast<T*>(values) = value;
  return 1;
}
// The place-th of the descriptors that the caller made for the answer.
Object& asked_for(void* values, size_t place, int type) {
  Object& object = object_of(static_cast<cudnnBackendDescriptor_t*>(values)[place]);
  expect(object.type == type && !object.finalized, "an answer of type ", type, " in a descriptor of type ",
         object.type);
  object.finalized = true;
  return object;
}
template <typename T>
void put(Object& object, int name, const T& value) {
  const auto* bytes = reinterpret_cast<const char*>(&value);
  object.attributes[name].assign(bytes, bytes + sizeof(value));
}

// Writes an attribute; how many values it has.
int64_t get(const Object& object, int name, int64_t requested, void* values) {
  const EngineSetting& setting = object.setting;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const Object& graph =
          part_of(object, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
      const auto found = offered(graph, object.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
      for (size_t i = 0; i < std::min(found.size(), static_cast<size_t>(requested)); ++i) {
        Object& configuration = asked_for(values, i, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        configuration.graph = &graph;
        configuration.setting = found[i];
      }
      return static_cast<int64_t>(found.size());
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      expect(requested == 1, requested, " engines of one configuration");
      Object& engine = asked_for(values, 0, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      engine.graph = object.graph;
      engine.setting = setting;
      return 1;
    }
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: {  // returns no more than are asked for
      const size_t count = std::min(setting.knobs.size(), static_cast<size_t>(requested));
      auto from = setting.knobs.begin();
      for (size_t i = 0; i < count; ++i, ++from) {
        Object& knob = asked_for(values, i, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(from->first));
        put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, from->second);
      }
      return static_cast<int64_t>(count);
    }
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
      return give(values, requested, setting.workspace);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return give(values, requested, setting.engine);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      if (setting.repeats || requested == 0) return setting.repeats ? 0 : 1;
      *static_cast<cudnnBackendNumericalNote_t*>(values) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      return 1;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      return give(values, requested, object.get<cudnnBackendKnobType_t>(name));
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      return give(values, requested, object.get<int64_t>(name));
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: {
      const Object& configuration =
          part_of(object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      return give(values, requested, configuration.setting.workspace);
    }
    default:
      throw_crash("cuDNN's backend: nobody asks for attribute ", name);
  }
}

}  // namespace

void refuse_next_plans(int count, cudnnStatus_t status) {
  refusal() = {count, status};
}
void fail_engine(int64_t engine, cudnnStatus_t status) {
  told().failing_engine = engine;
  told().failure = status;
}
void pretend_dnn_version(size_t version) {
  told().version = version;
}

void delay_engine(int64_t engine, int64_t milliseconds) {
  told().delayed_engine = engine;
  told().delay = milliseconds;
}
int64_t finalized_plans() {
  return told().finalized;
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
  const size_t pretended = told().version;
  return pretended != 0 ? pretended : CUDNN_VERSION;
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
  if (object.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) shiftron::machine::check_tensor(object);
  if (object.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) shiftron::machine::check_graph(object);
  const cudnnStatus_t status = shiftron::machine::engine_status(object);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    static std::atomic<int64_t> plans = 0;  // each is compiled
    shiftron::machine::load_code("plan " + std::to_string(++plans));
  }
  object.finalized = true;
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) ++told().finalized;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t requested, int64_t* count, void* values) {
  if (const auto told = injected(CallKind::attention, __func__, CUDNN_STATUS_INTERNAL_ERROR)) return told;
  const Object& object = object_of(descriptor);
  expect(object.finalized, "attribute ", int{name}, " of a descriptor that is not finalised");
  *count = shiftron::machine::get(object, name, requested, values);
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
  const Object& configuration =
      shiftron::machine::part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  const int64_t failing = told().failing_engine;
  if (failing == shiftron::machine::kEveryEngine || failing == configuration.setting.engine) return told().failure;
  const auto numbers = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  expect(numbers.size() == pointers.size(), numbers.size(), " numbers of tensors, ", pointers.size(), " pointers");
  std::map<int64_t, void*> memory;
  for (size_t i = 0; i < numbers.size(); ++i) memory[numbers[i]] = pointers[i];
  expect(memory.size() == numbers.size(), "a tensor is given twice");
  auto* workspace = static_cast<float*>(pack.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  expect(workspace != nullptr, "no workspace");
  ++told().executed;
  const int64_t bytes = configuration.setting.workspace;
  const std::chrono::milliseconds delay(configuration.setting.engine == told().delayed_engine ? told().delay.load()
                                                                                              : 0);
  auto run = shiftron::machine::graph_run(*configuration.graph, std::move(memory), configuration.setting.repeats);
  shiftron::machine::run_in_stream(handle->stream, [run, workspace, bytes, delay, life = std::weak_ptr(plan.life)] {
    expect(!life.expired(), "a plan that is destroyed before it ran");
    shiftron::sanitizer::state_write(workspace, static_cast<size_t>(bytes));
    std::fill_n(workspace, bytes / static_cast<int64_t>(sizeof(float)), std::numeric_limits<float>::quiet_NaN());
    std::this_thread::sleep_for(delay);
    run();
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
