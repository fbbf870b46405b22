// Ledger: what a rank's run costs: memory by category, work of every kernel, traffic of every communicator, time by kind.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

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

// Over as many calls as may be: counts of days do not fit 63 bits.
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
  double communication = 0;  // inside collectives
  double wait = 0;           // receiving from another stage
  double data = 0;           // reading tokens
};

class Ledger {
 public:
  // What kernels() has of it; stays where it is until clear_work().
  KernelCost& add_kernel(const char* name, int64_t bytes_read, int64_t bytes_written, int64_t operations);
  // Between the marks lies a call whose cost that is; their device tells the time when they are reached.
  void add_marks(KernelCost& cost, std::shared_ptr<Mark> begin, std::shared_ptr<Mark> end);
  void add_reached_times();  // of those that are reached, to their costs; never waits
  void add_traffic(const std::string& axis, const char* operation, int64_t bytes);
  void add_memory(const std::string& category, int64_t bytes);  // negative when freed

  const std::map<std::string, KernelCost, std::less<>>& kernels() const { return kernels_; }
  const std::map<std::string, TrafficCost>& traffic() const { return traffic_; }  // key "axis operation"
  const std::map<std::string, int64_t>& memory() const { return memory_; }
  int64_t memory_total() const;
  void clear_work();  // kernels, marks and traffic; memory stays
  void begin_step();  // kernels() begins at 0
  // Of kernels since clear_work(), over all steps.
  std::map<std::string, KernelSum> sums() const;

  // While it lives, kernels and traffic count `times` times: one of equal pieces of work stands for all. May be nested.
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
  std::map<std::string, int64_t> memory_;
  int64_t times_ = 1;  // that a call counts
};

}  // namespace shiftron
