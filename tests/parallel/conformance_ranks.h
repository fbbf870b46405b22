// What the conformance suite runs on: a communicator, its control plane, and streams with or without queues.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/event.h"
#include "core/has_cuda.h"
#include "core/memory.h"
#include "core/queue_cuda.h"
#include "kernels/kernels.h"
#include "parallel/conformance_numbers.h"
#include "parallel/host_communicator.h"

namespace shiftron::conformance {

// What sums of floating types must be. Moves, maxima and integers are exact in both.
enum class Level {
  rank_order,  // the bits of adding in rank order
  any_order,   // the same bits on all ranks, as near as adding in some order gives
};

using Split = std::function<std::unique_ptr<Communicator>(const std::vector<int>& members, const std::string& name)>;

// One rank's view of what is tested. All ranks of the world call Split as they would HostCommunicator::split.
struct Tested {
  Communicator& world;
  HostCommunicator& control;  // the same ranks in the same order; moves no tensors
  Split split;
  Level level = Level::rank_order;
  Queue* queue = nullptr;                                 // streams get siblings of it
  std::vector<int64_t> counts = {0, 1, 7, 1000, 100003};  // elements of a rank's tensor, ascending
  DeviceKind device = DeviceKind::cpu;
  bool sends_wait = false;       // for their receivers
  bool floating_maxima = true;  // or these are refused
};

// A communicator of the world, or of a part of it.
struct Group {
  const Tested& tested;
  Communicator& data;
  ControlPlane& control;
  int rank() const { return data.rank(); }
  int size() const { return data.size(); }
};

inline Group whole(const Tested& tested) {
  return {tested, tested.world, tested.control};
}

inline std::vector<int> all_ranks(const RankGroup& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// What looks at a result: the host, or an operation of the stream that started.
enum class Reader { host, stream };

// One rank's ledger and stream, and memory for as long as they live.
struct Rank {
  explicit Rank(DeviceKind device = DeviceKind::cpu, Queue* device_queue = nullptr, Reader reads = Reader::host)
      : reader(reads) {
    if (device_queue != nullptr) queue = device_queue->sibling("stream");
    stream.device = device;
    stream.ledger = &ledger;
    stream.queue = queue.get();
    if constexpr (kHasCuda) {
      if (device == DeviceKind::cuda) stream.cuda = &context_of(*queue);
    }
  }
  explicit Rank(const Tested& tested, Reader reads = Reader::host) : Rank(tested.device, tested.queue, reads) {}
  ~Rank() noexcept(false) {
    if (std::uncaught_exceptions() == 0) finish();
  }

  void finish() {
    Event end;
    end.record(stream);
    end.wait_on_host();
  }

  // Tensors that the stream fills.
  template <typename T>
  Tensor put(const std::vector<T>& values) {
    const Tensor result = make<T>(stream.device, static_cast<int64_t>(values.size()));
    fill(result, values);
    return result;
  }
  template <typename T>
  void fill(const Tensor& tensor, const std::vector<T>& values) {
    const Tensor source = make<T>(DeviceKind::pinned, tensor.count());
    std::copy(values.begin(), values.end(), source.host_data<T>());
    upload(stream, source, tensor);
  }
  template <typename T>
  Tensor blank(int64_t count) {
    return put(std::vector<T>(static_cast<size_t>(count)));
  }

  // What the tensor holds after `work`.
  template <typename T>
  std::vector<T> read(const Tensor& tensor, Work work) {
    if (reader == Reader::host) {
      work.wait_on_host();
      if (tensor.device() == DeviceKind::cpu) return copied<T>(tensor);
    }
    work.wait(stream);
    return read_in_stream<T>(tensor);
  }
  template <typename T>
  std::vector<T> read_in_stream(const Tensor& tensor) {
    const Tensor target = make<T>(DeviceKind::pinned, tensor.count());
    download(stream, tensor, target);
    finish();
    return copied<T>(target);
  }
  // For what nobody reads.
  void await(Work work) {
    if (reader == Reader::host)
      work.wait_on_host();
    else
      work.wait(stream);
  }

  Reader reader;
  Ledger ledger;
  std::deque<Buffer> memory;
  std::unique_ptr<Queue> queue;
  Stream stream;

 private:
  template <typename T>
  Tensor make(DeviceKind device, int64_t count) {
    const int64_t bytes = std::max<int64_t>(count * static_cast<int64_t>(sizeof(T)), 1);
    return memory.emplace_back(device, bytes, ledger, "test", stream.device == DeviceKind::cuda).tensor(0, DTypeOf<T>::value, {count});
  }
  template <typename T>
  static std::vector<T> copied(const Tensor& tensor) {
    return std::vector<T>(tensor.host_data<T>(), tensor.host_data<T>() + tensor.count());
  }
};

}  // namespace shiftron::conformance
