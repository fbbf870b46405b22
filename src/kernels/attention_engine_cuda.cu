// Engine configurations are always built from a choice: engines that the library offers are first converted to choices,
// so that stored choices take the same path.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/call_cuda.h"
#include "core/check.h"
#include "kernels/attention_engine_cuda.h"

namespace shiftron::cuda {
namespace {

// Null for the device of a handle.
cudnnBackendDescriptor_t described_device(Maker& maker, const AttentionTarget& target) {
  if (target.handle) return nullptr;
  const auto device = maker.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  maker.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, target.description.data(),
            static_cast<int64_t>(target.description.size()));
  maker.finalize(device);
  return device;
}

std::vector<cudnnBackendDescriptor_t> offered_configurations(Maker& maker, cudnnBackendDescriptor_t graph,
                                                             cudnnBackendDescriptor_t device,
                                                             cudnnBackendHeurMode_t mode) {
  const auto heuristics = maker.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  maker.set_part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  maker.set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
  if (device) maker.set_part(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  maker.finalize(heuristics);
  const int64_t count = maker.get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  return maker.get_parts(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

bool is_nondeterministic(Maker& maker, cudnnBackendDescriptor_t engine) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count = maker.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                  static_cast<int64_t>(notes.size()), notes.data());
  const auto end = notes.begin() + count;
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != end;
}

AttentionChoice choice_of(Maker& maker, cudnnBackendDescriptor_t configuration, cudnnBackendDescriptor_t engine) {
  AttentionChoice choice{.engine = maker.get_number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
                         .knobs = {},
                         .workspace = maker.get_number(configuration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE),
                         .seconds = 0};
  // If asked for zero knobs, the library reports that there are none; so this asks for the largest possible number.
  for (const auto knob : maker.get_parts(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                         CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    cudnnBackendKnobType_t type{};
    maker.get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    choice.knobs[type] = maker.get_number(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  }
  return choice;
}

cudnnBackendDescriptor_t configuration_of(Maker& maker, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
                                          const AttentionChoice& choice) {
  const auto engine = maker.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  maker.set_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  maker.set_number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine);
  if (device) maker.set_part(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, device);
  maker.finalize(engine);
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (const auto& [number, value] : choice.knobs) {
    const auto type = static_cast<int32_t>(number);  // from a file, so it may not be an enumerator of this library
    static_assert(sizeof(type) == sizeof(cudnnBackendKnobType_t));
    const auto knob = knobs.emplace_back(maker.make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    maker.set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, &type);
    maker.set_number(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    maker.finalize(knob);
  }
  const auto configuration = maker.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  maker.set_part(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) {
    maker.set(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs.data(),
              static_cast<int64_t>(knobs.size()));
  }
  maker.finalize(configuration);
  return configuration;
}

// The library's message about its last call, which failed.
std::string failure(cudnnStatus_t status) {
  std::array<char, 1024> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  const std::string more = message.data();
  return cudnnGetErrorString(status) + (more.empty() ? more : ": " + more);
}

bool is_refusal(cudnnStatus_t status) {
  const int category = CUDNN_STATUS_CATEGORY(status);
  return category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
}
bool is_no_memory(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

}  // namespace

void throw_dnn(cudnnStatus_t status, const char* call, const std::string& about) {
  const std::string named = detail::concatenate(call, " for ", about);
  if (is_refusal(status)) throw UnsupportedProblem(named + ": " + failure(status));
  if (is_no_memory(status)) throw_no_memory(named, failure(status));
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED) {
    throw FailedExecution(named + ": " + failure(status));
  }
  throw_crash(named, ": ", failure(status));
}

void require_known_dnn() {
  constexpr size_t kOldest = 91900;
  static_assert(CUDNN_VERSION >= kOldest, "cuDNN 9.19 or later is needed: see docs/gpu.md");
  const size_t version = cudnnGetVersion();
  if (version >= kOldest) return;
  throw_bad_input("cuDNN ", version / 10000, ".", version % 10000 / 100, ".", version % 100,
                  " is loaded, but 9.19 or later is needed, because older versions compute wrong gradients; check "
                  "which libcudnn.so.9 comes "
                  "first in LD_LIBRARY_PATH");
}

std::vector<AttentionChoice> offered_engines(const AttentionProblem& problem, const AttentionTarget& target) {
  std::vector<Descriptor> kept;
  Maker maker(kept, problem);
  const auto device = described_device(maker, target);
  const auto graph = attention_graph(maker, problem, target.handle);
  std::vector<AttentionChoice> offered;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const auto configuration : offered_configurations(maker, graph, device, mode)) {
      const auto engine =
          maker.get_parts(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0);
      if (problem.deterministic && is_nondeterministic(maker, engine)) continue;
      const AttentionChoice choice = choice_of(maker, configuration, engine);
      if (std::find(offered.begin(), offered.end(), choice) == offered.end()) offered.push_back(choice);
    }
  }
  return offered;
}

PlanMemory::PlanMemory(const AttentionProblem& problem) {
  if (problem.pass == AttentionPass::forward) return;
  const auto padded = [](int64_t numbers) { return (numbers * 4 + 255) / 256 * 256; };  // of float32
  const int64_t rows = problem.samples * problem.length * problem.heads;
  delta = padded(rows);
  if (!problem.deterministic) query_sum = padded(rows * problem.head_dim);
}

AttentionPlan::AttentionPlan(const AttentionProblem& problem, const AttentionTarget& target,
                             const AttentionChoice& choice)
    : problem_(problem) {
  Maker maker(parts_, problem_);
  const auto device = described_device(maker, target);
  const auto graph = attention_graph(maker, problem_, target.handle);
  const auto configuration = configuration_of(maker, graph, device, choice);
  plan_ = maker.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  maker.set_part(plan_, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (target.handle) maker.set(plan_, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &target.handle);
  if (device) maker.set_part(plan_, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
  maker.finalize(plan_);
  workspace_ = maker.get_number(plan_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
}

void AttentionPlan::execute(cudnnHandle_t handle, const std::map<AttentionTensor, void*>& tensors,
                            void* workspace) const {
  std::array<float, 3> numbers = {static_cast<float>(1 / std::sqrt(static_cast<double>(problem_.head_dim))),
                                  -std::numeric_limits<float>::infinity(), 1};
  std::vector<int64_t> names = {kScale, kMinusInfinity};
  std::vector<void*> places = {&numbers[0], &numbers[1]};
  if (problem_.pass == AttentionPass::backward) {
    names.push_back(kOne);
    places.push_back(&numbers[2]);
  }
  for (const auto& [name, place] : tensors) {
    names.push_back(name);
    places.push_back(place);
  }
  std::vector<Descriptor> kept;
  Maker maker(kept, problem_);
  const auto pack = maker.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(names.size());
  maker.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), count);
  maker.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, places.data(), count);
  maker.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
  maker.finalize(pack);
  check_dnn(cudnnBackendExecute(handle, plan_, pack), "cudnnBackendExecute", problem_);
}

}  // namespace shiftron::cuda
