// Sums of the ledger.
#include "core/ledger.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace shiftron {
namespace {

void add(std::map<std::string, KernelSum>& sums, const std::string& name, const KernelCost& cost) {
  KernelSum& sum = sums[name];
  sum.calls += static_cast<double>(cost.calls);
  sum.bytes += static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
  sum.operations += static_cast<double>(cost.operations);
  sum.seconds += cost.seconds;
}

}  // namespace

void take_reached(std::vector<AwaitedOperation>& operations, TimeSplit& times) {
  std::erase_if(operations, [&](const AwaitedOperation& operation) {
    if (!operation.asked->reached() || !operation.end->reached()) return false;
    // Negative if the operation was over when the stream began to wait for it.
    const double awaited = std::max(operation.end->seconds_since(*operation.asked), 0.0);
    times.*operation.kind += awaited;
    if (operation.time != nullptr) {
      ++operation.time->calls;
      operation.time->awaited += awaited;
      operation.time->seconds += operation.end->seconds_since(*operation.begin);
    }
    return true;
  });
}

KernelCost& Ledger::add_kernel(const char* name, int64_t bytes_read, int64_t bytes_written, int64_t operations) {
  auto at = kernels_.find(std::string_view(name));
  if (at == kernels_.end()) at = kernels_.emplace(name, KernelCost{}).first;
  KernelCost& cost = at->second;
  cost.calls += times_;
  cost.bytes_read += times_ * bytes_read;
  cost.bytes_written += times_ * bytes_written;
  cost.operations += times_ * operations;
  return cost;
}

void Ledger::begin_step() {
  for (auto& [name, cost] : kernels_) add(before_, name, std::exchange(cost, KernelCost{}));  // marks point to them
}

std::map<std::string, KernelSum> Ledger::sums() const {
  std::map<std::string, KernelSum> sums = before_;
  for (const auto& [name, cost] : kernels_) add(sums, name, cost);
  return sums;
}

void Ledger::add_marks(KernelCost& cost, std::shared_ptr<Mark> begin, std::shared_ptr<Mark> end) {
  marked_.push_back({&cost, std::move(begin), std::move(end)});
}

void Ledger::add_reached_times() {
  for (; !marked_.empty() && marked_.front().end->reached(); marked_.pop_front()) {
    marked_.front().cost->seconds += marked_.front().end->seconds_since(*marked_.front().begin);
  }
}

void Ledger::add_traffic(const std::string& axis, const char* operation, int64_t bytes) {
  TrafficCost& cost = traffic_[axis + " " + operation];
  cost.calls += times_;
  cost.bytes += times_ * bytes;
}

TrafficTime& Ledger::traffic_time(const std::string& axis, const char* operation) {
  return traffic_times_[axis + " " + operation];
}

void Ledger::add_memory(const std::string& category, int64_t bytes) { memory_[category] += bytes; }

int64_t Ledger::memory_total() const {
  int64_t total = 0;
  for (const auto& [category, bytes] : memory_) total += bytes;
  return total;
}

void Ledger::clear_work() {
  marked_.clear();
  kernels_.clear();
  before_.clear();
  traffic_.clear();
  traffic_times_.clear();
  awaited_.clear();
}

TimeSplit Ledger::take_times() { return std::exchange(times, TimeSplit{}); }

}  // namespace shiftron
