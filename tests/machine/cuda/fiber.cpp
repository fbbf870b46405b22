// Switches are Boost.Context's, which need no system calls.
#include "cuda/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>

#include "core/check.h"
#include "core/sanitizer.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SHIFTRON_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace shiftron::machine {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr size_t kPage = 4096;
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStack = size_t{256} << 10;
#else
constexpr size_t kStack = size_t{64} << 10;
#endif

}  // namespace

struct FiberEntry {
  static void enter(transfer_t transfer) { Fiber::enter(transfer.fctx, transfer.data); }
};

Fiber::Fiber() {
#ifdef SHIFTRON_THREAD_SANITIZER
  clock_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument), size_(kStack) {
  void* const memory = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for a stack of ", kStack, " bytes");
  memory_ = static_cast<char*>(memory);
  CHECK(mprotect(memory_, kPage, PROT_NONE) == 0, "cannot close a page");
  bottom_ = memory_ + kPage;
  context_ = make_fcontext(memory_ + kPage + kStack, kStack, FiberEntry::enter);
#ifdef SHIFTRON_THREAD_SANITIZER
  clock_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (memory_ == nullptr) return;
#ifdef SHIFTRON_THREAD_SANITIZER
  __tsan_destroy_fiber(clock_);
#endif
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(memory_ + kPage, kStack);
#endif
  munmap(memory_, kPage + kStack);
}

void Fiber::switch_to(Fiber& other) {
  Switch both{this, &other};
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fake_stack_, other.bottom_, other.size_);
#endif
#ifdef SHIFTRON_THREAD_SANITIZER
  __tsan_switch_to_fiber(other.clock_, __tsan_switch_to_fiber_no_sync);
#endif
  const transfer_t transfer = jump_fcontext(other.context_, &both);
  arrive(transfer.fctx, transfer.data);
}

void Fiber::release(void* address) {
#ifdef SHIFTRON_THREAD_SANITIZER
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(clock_, __tsan_switch_to_fiber_no_sync);
  sanitizer::release(address);
  __tsan_switch_to_fiber(caller, __tsan_switch_to_fiber_no_sync);
#else
  (void)address;
#endif
}

void Fiber::arrive(void* context, void* both) {
  const Switch& now = *static_cast<const Switch*>(both);
  now.from->context_ = context;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(now.to->fake_stack_, &now.from->bottom_, &now.from->size_);
#endif
}

void Fiber::enter(void* context, void* both) {
  Fiber& self = *static_cast<const Switch*>(both)->to;
  arrive(context, both);
  self.body_(self.argument_);
}

}  // namespace shiftron::machine
