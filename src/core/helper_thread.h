// HelperThread: runs one piece of work after another, in parallel with the thread that owns it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace shiftron {

// Work given to start() must not touch what its owner touches before the next finish(). Without a thread of its own
// (`threaded` is false, or none can be created) start() does the work itself.
class HelperThread {
 public:
  explicit HelperThread(bool threaded);
  ~HelperThread();  // waits for the current work; an exception of it is lost
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // Waits for the previous work; if that threw, rethrows it and does not start.
  void start(std::function<void()> work);
  // Waits until no work is running; rethrows what the work threw.
  void finish();

 private:
  void serve();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // running or about to
  std::exception_ptr fault_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shiftron
