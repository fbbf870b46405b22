// Mappings between two inaccessible pages. They are created by raw system calls: ThreadSanitizer expects an address to
// be used once.
#include "machine/cuda/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "core/check.h"
#include "core/queue.h"
#include "core/sanitizer.h"

namespace shiftron::machine {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMostFilled =
    size_t{1} << 30;  // larger memory is sparse: it begins as zeros, and what nobody touches costs nothing

struct Block {
  MemoryKind kind = MemoryKind::device;
  size_t bytes = 0;
  char* data = nullptr;
  char* pages = nullptr;  // the first of them is nobody's, and so is the last
  size_t page_bytes = 0;
};

// Where a signal's handler finds them.
std::map<const char*, Block>& live() {  // by their end: that of the pages
  static auto& blocks = *new std::map<const char*, Block>;
  return blocks;
}
std::vector<Block>& freed() {
  static auto& blocks = *new std::vector<Block>;
  return blocks;
}

const char* name_of(MemoryKind kind) {
  return kind == MemoryKind::device ? "device" : "pinned";
}

// The one whose pages hold the address.
const Block* block_at(const char* address) {
  const auto found = live().upper_bound(address);
  return found != live().end() && address >= found->second.pages ? &found->second : nullptr;
}

// Addresses that were never anybody's, such as a thread's stack.
char* take(size_t bytes) {
  constexpr size_t kAll = size_t{sanitizer::kThreads ? 256 : 4096} << 30;  // ThreadSanitizer has room for few
  static const long first =
      syscall(SYS_mmap, nullptr, kAll, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  static size_t taken = 0;
  CHECK(first != -1, "no addresses for device memory");
  if (bytes > kAll - taken) return nullptr;
  taken += bytes;
  return reinterpret_cast<char*>(first) + (taken - bytes);
}

void protect(const Block& block, int rights) {
  CHECK(mprotect(block.pages + kPage, block.page_bytes - 2 * kPage, rights) == 0, "mprotect of ", block.bytes,
        " bytes");
}

struct sigaction before;

void tell_who_touches(int, siginfo_t* info, void*) {
  const char* address = static_cast<const char*>(info->si_addr);
  const char* state = "";
  const Block* block = block_at(address);
  for (const Block& old : freed()) {
    if (address < old.pages || address >= old.pages + old.page_bytes) continue;
    block = &old;
    state = "freed ";
  }
  if (block != nullptr) {
    char text[200];
    const int length = std::snprintf(text, sizeof(text), "%s touches byte %td of %s%s memory of %zu bytes\n",
                                     Turns::of_this_thread() != nullptr ? "an operation" : "the host",
                                     address - block->data, state, name_of(block->kind), block->bytes);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(length));
  }
  sigaction(SIGSEGV, &before, nullptr);  // it happens again
}

void watch() {
  static const bool once = [] {
    live(), freed();  // are made
    struct sigaction action {};
    action.sa_sigaction = tell_who_touches;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, &before) == 0;
  }();
  CHECK(once, "no handler for SIGSEGV");
}

}  // namespace

void* DeviceMemory::allocate(MemoryKind kind, size_t bytes) {
  watch();
  if (bytes > limit || (kind == MemoryKind::device && used + bytes > limit)) return nullptr;
  Block block{.kind = kind, .bytes = bytes};
  const size_t own = (bytes + kPage - 1) / kPage * kPage;
  block.page_bytes = own + 2 * kPage;
  block.pages = take(block.page_bytes);
  if (block.pages == nullptr) return nullptr;
  block.data = block.pages + kPage + own - (bytes + 15) / 16 * 16;
  protect(block, PROT_READ | PROT_WRITE);
  if (bytes <= kMostFilled) std::memset(block.pages + kPage, 0xFF, own);
  if (kind == MemoryKind::device) {
    used += bytes;
    if (!open_) protect(block, PROT_NONE);
  }
  live().emplace(block.pages + block.page_bytes, block);
  return block.data;
}

size_t DeviceMemory::bytes_of(MemoryKind kind, const void* data, const char* call) const {
  const Block* block = block_at(static_cast<const char*>(data));
  CHECK(block != nullptr && block->data == data && block->kind == kind, call, " of what is no ", name_of(kind),
        " memory");
  return block->bytes;
}

void DeviceMemory::free(MemoryKind kind, void* data, const char* call) {
  bytes_of(kind, data, call);
  const Block block = *block_at(static_cast<char*>(data));
  live().erase(block.pages + block.page_bytes);
  freed().push_back(block);
  // Pages that never were written: of those the kernel keeps neighbours as one mapping, and mappings are few.
  CHECK(
      syscall(SYS_mmap, block.pages, block.page_bytes, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != -1,
      "mmap of ", block.page_bytes, " bytes");
  if (kind == MemoryKind::device) used -= block.bytes;
}

void DeviceMemory::check_range(MemoryKind kind, const void* data, size_t bytes, const char* call) const {
  const char* first = static_cast<const char*>(data);
  const Block* block = block_at(first);
  CHECK(block != nullptr && block->kind == kind, call, ": an operand does not lie in ", name_of(kind), " memory");
  CHECK(first >= block->data && first + bytes <= block->data + block->bytes, call, ": bytes ", first - block->data,
        " to ", first - block->data + static_cast<ptrdiff_t>(bytes), " of ", name_of(kind), " memory of ",
        block->bytes);
}

void DeviceMemory::begin_call() {
  ++calls_;
}

void DeviceMemory::end_call() {
  if (--calls_ > 0 || !open_) return;
  open_ = false;
  for (const auto& [end, block] : live()) {
    if (block.kind == MemoryKind::device) protect(block, PROT_NONE);
  }
}

void DeviceMemory::open() {
  CHECK(calls_ > 0, "an operation runs outside of the calls of the runtime");
  if (open_) return;
  open_ = true;
  for (const auto& [end, block] : live()) {
    if (block.kind == MemoryKind::device) protect(block, PROT_READ | PROT_WRITE);
  }
}

int64_t DeviceMemory::allocations(MemoryKind kind) const {
  return std::ranges::count_if(live(), [kind](const auto& entry) { return entry.second.kind == kind; });
}

void DeviceMemory::forget_all() {
  CHECK(live().empty(), live().size(), " allocations are left");
}

}  // namespace shiftron::machine
