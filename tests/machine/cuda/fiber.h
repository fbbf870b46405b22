// A fiber: a function with its own stack that shares a host thread with others, one running at a time. The sanitizers
// know it; ThreadSanitizer sees no order in a switch. Only included by files that are not instrumented.
#pragma once

#include <cstddef>

namespace shiftron::machine {

class Fiber {
 public:
  Fiber();                                     // of the caller, on the stack that it has
  Fiber(void (*body)(void*), void* argument);  // begins with the first switch to it; `body` never returns
  ~Fiber();                                    // whatever it was about is left as it is
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void switch_to(Fiber& other);  // by this one; returns when somebody switches back
  void release(void* address);   // to ThreadSanitizer, in the name of this one, by any other

 private:
  struct Switch {
    Fiber *from, *to;
  };
  static void enter(void* context, void* both);
  static void arrive(void* context, void* both);
  friend struct FiberEntry;

  void* context_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* memory_ = nullptr;  // a closed page, and the stack
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  void* fake_stack_ = nullptr;  // of AddressSanitizer
  void* clock_ = nullptr;       // of ThreadSanitizer
};

}  // namespace shiftron::machine
