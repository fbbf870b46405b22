// HelperThread: does one piece of work after the other beside the thread that owns it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace shiftron {

// What is given to start() must not touch what its owner touches before the next finish(). Without a thread of its own
// (`threaded` false, or none can be made) start() does the work itself.
class HelperThread {
 public:
  explicit HelperThread(bool threaded);
  ~HelperThread();  // behind the work under way; what that throws is lost
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // Behind the work before; throws what that threw, and then does not begin.
  void start(std::function<void()> work);
  // Until nothing is under way; throws what the work threw.
  void finish();

 private:
  void serve();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // under way or about to be
  std::exception_ptr fault_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shiftron
