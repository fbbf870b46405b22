// The last step of every front end: records the cost in the ledger and passes the operation to the body for its device,
// either now or in the stream's queue.
#pragma once

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "core/operands.h"
#include "core/sanitizer.h"
#include "core/stream.h"

namespace shiftron {

// Bytes that a call reads or writes.
struct Operands {
  Operands(std::initializer_list<ConstTensor> tensors) { add(tensors); }
  void add(std::initializer_list<ConstTensor> tensors) {
    for (const ConstTensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      tensor.check_alive();
      bytes += tensor.bytes();
    }
  }
  int64_t bytes = 0;
};

// Appends a description of an argument to a message: type and shape of a tensor, nothing for numbers.
template <typename Argument>
void append_argument(std::string& text, const Argument& argument) {
  if constexpr (std::is_base_of_v<ConstTensor, Argument>) {
    if (!argument.defined()) return;
    text += (text.empty() ? " of " : ", ") + std::string(name_of(argument.dtype())) + " " + argument.shape().text();
  }
}

// For a list of calls: describes the first ones.
template <typename Call>
void append_argument(std::string& text, const std::vector<Call>& calls) {
  constexpr size_t kMostNamedTensors = 3;
  for (size_t i = 0; i < std::min(calls.size(), kMostNamedTensors); ++i) {
    if constexpr (requires { calls[i].x; }) {
      append_argument(text, calls[i].x);
    } else {
      append_argument(text, calls[i].weight);
    }
  }
  if (calls.size() > kMostNamedTensors) text += " and " + std::to_string(calls.size() - kMostNamedTensors) + " others";
}

// The bodies of one operation. `fast` handles float32 and bfloat16; null if the reference implementation is fast
// enough. `cuda` is null in builds without CUDA.
template <typename... Arguments>
struct BodyTable {
  void (*specification)(const CpuOptions&, Arguments...);
  void (*fast)(const CpuOptions&, Arguments...);
  void (*cuda)(const CudaContext&, Arguments...) = nullptr;
};
template <typename... Arguments, typename... Others>
BodyTable(void (*)(const CpuOptions&, Arguments...), Others...) -> BodyTable<Arguments...>;

// `dtype`: float64 uses the reference implementation.
template <typename... Arguments>
void launch(Stream& stream, const char* name, const Operands& reads, const Operands& writes, int64_t operations,
            DType dtype, const BodyTable<Arguments...>& bodies, std::type_identity_t<Arguments>... arguments) {
  CHECK(stream.ledger != nullptr, name, " needs a ledger");
  KernelCost& cost = stream.ledger->add_kernel(name, reads.bytes, writes.bytes, operations);
  if (stream.device == DeviceKind::meta) return;
  if (stream.device == DeviceKind::cuda) {
    CHECK(bodies.cuda != nullptr, name, " has no CUDA body in this build");
    CudaContext context = *stream.cuda;
    context.deterministic = stream.deterministic;
    try {
      const std::shared_ptr<Mark> begin = stream.timed ? stream.queue->mark(true) : nullptr;
      bodies.cuda(context, arguments...);
      if (begin != nullptr) stream.ledger->add_marks(cost, begin, stream.queue->mark(true));
      return;
    } catch (const Error& error) {
      std::string operands;
      (append_argument(operands, arguments), ...);
      throw Error(std::string(name) + operands + ": " + error.what(), error.code());
    }
  }
  const bool fast = bodies.fast != nullptr && stream.cpu.bodies == Bodies::fast && dtype != DType::float64;
  const auto body = fast ? bodies.fast : bodies.specification;
  if (stream.queue != nullptr) {
    stream.queue->run([body, cpu = stream.cpu, arguments...] {
      (state_argument(arguments), ...);
      body(cpu, arguments...);
    });
    return;
  }
  if constexpr (sanitizer::kThreads) (state_argument(arguments), ...);
  if (!stream.timed) return body(stream.cpu, arguments...);
  const auto start = std::chrono::steady_clock::now();
  body(stream.cpu, arguments...);
  cost.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace shiftron
