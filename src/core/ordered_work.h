// OrderedWork: several threads process items, which are taken in the order in which they were added.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/thread_without_signals.h"

namespace shiftron {

template <typename Item>
class OrderedWork {
 public:
  using Notify = std::function<void(size_t done)>;
  struct Steps {
    std::function<void(Item&, const Notify&)> work;  // on any thread, which has its own copy; reports progress
    std::function<void(Item&)> take;                 // on the caller's thread, in order
    std::function<void(const Item&, size_t done)> progressed;  // on the caller's, of the item that is taken next
  };

  // Bytes of an item in addition to the weight that it is added with.
  static constexpr uint64_t own_bytes() { return sizeof(Entry); }

  // threads: workers, in addition to the caller, which only takes; if ≤ 1, or if none can be started, the caller does
  // all the work. Waiting items have `most` bytes in total, including their own sizes; a heavier item waits alone.
  OrderedWork(int threads, uint64_t most, Steps steps) : most_(most), steps_(std::move(steps)) {
    if (threads > 1)
      workers_ = threads_without_signals(static_cast<size_t>(threads), [this, work = steps_.work] { run(work); });
  }
  ~OrderedWork() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    more_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // weight: bytes that the item holds elsewhere. Returns when it and the items before it weigh no more than `most`.
  // Rethrows what an item's work threw when that item is to be taken; nothing may be added after that.
  void add(Item item, uint64_t weight) {
    if (workers_.empty()) {
      steps_.work(item, [&](size_t done) { steps_.progressed(item, done); });
      return steps_.take(item);
    }
    {
      const std::lock_guard lock(mutex_);
      entries_.emplace_back(std::move(item), weight);
      weight_ += entries_.back().weight;
    }
    more_.notify_one();
    take_in_order(false);
  }
  // Returns when all are taken.
  void finish() { take_in_order(true); }

 private:
  struct Entry {
    Entry(Item its, uint64_t held) : item(std::move(its)), weight(held + own_bytes()) {}
    Item item;
    uint64_t weight;
    std::atomic<size_t> progressed = 0;
    bool is_done = false;
    std::exception_ptr fault;
  };

  void run(const std::function<void(Item&, const Notify&)>& work) {
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [&] { return stops_ || next_ < entries_.size(); });
      if (stops_) return;
      Entry& mine = entries_[next_++];  // stays in place while others are added and removed at the ends
      lock.unlock();
      try {
        work(mine.item, [&](size_t done) { mine.progressed = done; });
      } catch (...) {
        mine.fault = std::current_exception();
      }
      lock.lock();
      mine.is_done = true;
      done_.notify_one();
    }
  }

  // Takes those that are done; waits for others while the total exceeds most_, or, with `all`, until none is left.
  void take_in_order(bool all) {
    std::unique_lock lock(mutex_);
    while (!entries_.empty()) {
      Entry& front = entries_.front();
      if (!front.is_done) {
        if (!all && weight_ <= most_) return;
        done_.wait_for(lock, std::chrono::milliseconds(200), [&] { return front.is_done; });
        lock.unlock();
        steps_.progressed(front.item, front.progressed);
        lock.lock();
        continue;
      }
      lock.unlock();
      if (front.fault) std::rethrow_exception(front.fault);
      steps_.take(front.item);
      lock.lock();
      weight_ -= front.weight;
      entries_.pop_front();
      --next_;
    }
  }

  const uint64_t most_;
  const Steps steps_;
  std::mutex mutex_;
  std::condition_variable more_, done_;
  std::deque<Entry> entries_;
  size_t next_ = 0;  // the first that no worker has begun
  uint64_t weight_ = 0;
  bool stops_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace shiftron
