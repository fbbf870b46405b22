// Ledger: the costs of a rank's run: memory by category, work of every kernel, traffic of every communicator, time by
// kind.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/queue.h"

namespace shiftron {

struct KernelCost {
  int64_t calls = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t operations = 0;  // floating-point
  double seconds = 0;      // of a timed stream
  bool operator==(const KernelCost&) const = default;
};

// Over any number of calls: counts of several days do not fit 63 bits.
struct KernelSum {
  double calls = 0;
  double bytes = 0;  // read and written
  double operations = 0;
  double seconds = 0;
};

struct TrafficCost {
  int64_t calls = 0;
  int64_t bytes = 0;  // that this rank hands over: payload of the call, before any algorithm
  bool operator==(const TrafficCost&) const = default;
};

// Seconds by kind since the last take_times().
struct TimeSplit {
  double communication = 0;  // blocked in collectives and in sending to another stage
  double wait = 0;           // receiving from another stage
  double data = 0;           // reading tokens
};

// Seconds of a communicator's operations in a timed stream, all calls together.
struct TrafficTime {
  int64_t calls = 0;
  double seconds = 0;  // on the device, including time that an operation waits for peers
  double awaited = 0;  // while the stream that started them was blocked on their results
};

// An operation of a communicator on a device, with timed marks.
struct AwaitedOperation {
  double TimeSplit::* kind;
  TrafficTime* time;            // null unless the stream is timed
  std::shared_ptr<Mark> begin;  // likewise
  std::shared_ptr<Mark> asked;  // where the stream that started it begins to wait for it
  std::shared_ptr<Mark> end;
};
// Removes the finished operations and adds the time that their streams were blocked to `times`. Never waits.
void take_reached(std::vector<AwaitedOperation>& operations, TimeSplit& times);

class Ledger {
 public:
  // Returns the entry of kernels(), which stays valid until clear_work().
  KernelCost& add_kernel(const char* name, int64_t bytes_read, int64_t bytes_written, int64_t operations);
  // The call with this cost lies between the marks; its time is added once they are reached.
  void add_marks(KernelCost& cost, std::shared_ptr<Mark> begin, std::shared_ptr<Mark> end);
  void add_reached_times();  // adds the times of reached marks to their costs; never waits
  void add_traffic(const std::string& axis, const char* operation, int64_t bytes);
  TrafficTime& traffic_time(const std::string& axis, const char* operation);  // valid until clear_work()
  void add_memory(const std::string& category, int64_t bytes);                // negative when freed
  // For an operation of a device's communicator, if times_communication().
  void add_awaited(AwaitedOperation operation) { awaited_.push_back(std::move(operation)); }
  void time_communication(bool timed) { times_communication_ = timed; }  // until the next call; off at first
  bool times_communication() const { return times_communication_; }
  std::vector<AwaitedOperation> take_awaited() { return std::exchange(awaited_, {}); }  // since the last take_awaited()

  const std::map<std::string, KernelCost, std::less<>>& kernels() const { return kernels_; }
  const std::map<std::string, TrafficCost>& traffic() const { return traffic_; }  // key "axis operation"
  const std::map<std::string, TrafficTime>& traffic_times() const { return traffic_times_; }  // keys of traffic()
  const std::map<std::string, int64_t>& memory() const { return memory_; }
  int64_t memory_total() const;
  void clear_work();  // kernels, marks, traffic and its times; memory stays
  void begin_step();  // kernels() starts at 0
  // Sums of kernels since clear_work(), over all steps.
  std::map<std::string, KernelSum> sums() const;

  // While it lives, kernels and traffic count `times` times: one of several equal pieces of work stands for all. May be
  // nested.
  class Repeat {
   public:
    Repeat(Ledger& ledger, int64_t times) : ledger_(ledger), before_(ledger.times_) { ledger.times_ *= times; }
    ~Repeat() { ledger_.times_ = before_; }
    Repeat(const Repeat&) = delete;
    Repeat& operator=(const Repeat&) = delete;

   private:
    Ledger& ledger_;
    int64_t before_;
  };

  TimeSplit times;
  TimeSplit take_times();

 private:
  std::map<std::string, KernelCost, std::less<>> kernels_;
  std::map<std::string, KernelSum> before_;  // of the steps before this one
  struct MarkedCall {
    KernelCost* cost;
    std::shared_ptr<Mark> begin, end;
  };
  std::deque<MarkedCall> marked_;  // in the order of one queue
  std::map<std::string, TrafficCost> traffic_;
  std::map<std::string, TrafficTime> traffic_times_;
  std::vector<AwaitedOperation> awaited_;
  std::map<std::string, int64_t> memory_;
  int64_t times_ = 1;  // how often a call counts
  bool times_communication_ = false;
};

}  // namespace shiftron
