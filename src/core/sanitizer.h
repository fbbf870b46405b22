// Reports to ThreadSanitizer what it cannot see: ranges that operations touch, and the order that a queue keeps. Empty
// in builds without it. SHIFTRON_THREAD_SANITIZER is defined for every file of such a build, instrumented or not.
#pragma once

#include <cstddef>

#ifdef SHIFTRON_THREAD_SANITIZER
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, size_t bytes);
void __tsan_write_range(void* address, size_t bytes);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace shiftron::sanitizer {

#ifdef SHIFTRON_THREAD_SANITIZER
inline constexpr bool kThreads = true;
inline void acquire(void* address) { __tsan_acquire(address); }
inline void release(void* address) { __tsan_release(address); }
// Reports that the calling thread now reads, or writes, these bytes.
inline void state_read(const void* address, size_t bytes) { __tsan_read_range(const_cast<void*>(address), bytes); }
inline void state_write(void* address, size_t bytes) { __tsan_write_range(address, bytes); }

// While it lives, ThreadSanitizer ignores this thread's locks and memory accesses.
class Hidden {
 public:
  Hidden() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Hidden() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};
#else
inline constexpr bool kThreads = false;
inline void acquire(void*) {}
inline void release(void*) {}
inline void state_read(const void*, size_t) {}
inline void state_write(void*, size_t) {}
class Hidden {
 public:
  Hidden() {}
  ~Hidden() {}
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};
#endif

}  // namespace shiftron::sanitizer
