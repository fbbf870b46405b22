// The late scheduler: queues whose operations run when an adversary chooses, one at a time in the whole process. They
// report only the promised order to ThreadSanitizer: a queue's own, that of marks, and that of enqueueing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/queue.h"

namespace shiftron {

enum class Order {
  eager,   // at the call, or as soon as it can
  random,  // any time, anything
  late,    // what a host's wait needs; the rest only if that cannot continue
  uneven,  // every queue eager or late for a while
};
inline constexpr std::array kOrders = {Order::eager, Order::random, Order::late, Order::uneven};
inline constexpr const char* kOrderNames[] = {"eager", "random", "late", "uneven"};  // by number

struct MachineOptions {
  Order order = Order::late;
  uint64_t seed = 0;     // of random and uneven
  double patience = 20;  // seconds without progress before a waiting host gets an error
  bool keeps_log = false;
};

namespace machine {
class World;
}

// One for all hosts (threads that enqueue and wait) of a process; its queues and marks may outlive it. A host that
// waits runs operations, also those of other hosts' queues. A queue that failed drops what it is given until drop()
// resets it.
class Machine {
 public:
  struct Entry {
    std::string queue;
    int64_t number;  // of the operation in its queue, from 0
    bool begins;     // or ends
    bool operator==(const Entry&) const = default;
  };

  explicit Machine(const MachineOptions& options);
  ~Machine();
  std::unique_ptr<Queue> make_queue(const std::string& name);
  std::vector<Entry> log() const;  // of all operations that ran, in order

  // If ranks are processes, a host that waits for a peer runs nothing, while the peer waits for what this host has
  // enqueued. Another thread calls this now and then: if no host ran or enqueued anything since the last call, it runs
  // what can run.
  void relieve();

 private:
  std::shared_ptr<machine::World> world_;
};

}  // namespace shiftron
