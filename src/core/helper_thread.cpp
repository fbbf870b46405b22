// One thread, one piece of work at a time.
#include "core/helper_thread.h"

#include <utility>

#include "core/thread_without_signals.h"

namespace shiftron {

HelperThread::HelperThread(bool threaded) {
  if (!threaded) return;
  try {
    thread_ = thread_without_signals([this] { serve(); });
  } catch (const Error&) {  // the caller does the work
  }
}

HelperThread::~HelperThread() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HelperThread::start(std::function<void()> work) {
  finish();
  if (!thread_.joinable()) {
    work();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void HelperThread::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
}

void HelperThread::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || work_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr fault;
    try {
      work_();
    } catch (...) {
      fault = std::current_exception();
    }
    lock.lock();
    fault_ = fault;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace shiftron
