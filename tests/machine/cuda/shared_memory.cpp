// A red zone lies before the first array and after each: poisoned, or filled with a value that nobody writes.
#include "cuda/shared_memory.h"

#include <sys/mman.h>

#include "core/check.h"
#include "core/sanitizer.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

namespace shiftron::machine {
namespace {

constexpr size_t kZoneWords = 32, kZone = kZoneWords * sizeof(uint32_t);
constexpr size_t kMemory = SharedMemory::kMostBytes + 64 * kZone;
constexpr uint32_t kUnwritten = 0x7FC17FC1;  // NaN in every floating type
constexpr uint32_t kUntouched = 0xC5A5C3A3;

void fill(uint32_t* words, size_t count, uint32_t value) {
  for (size_t i = 0; i < count; ++i) words[i] = value;
}

#ifndef __SANITIZE_ADDRESS__
void make_zone(uint32_t* words) {
  fill(words, kZoneWords, kUntouched);
}
bool is_zone(const uint32_t* words) {
  for (size_t i = 0; i < kZoneWords; ++i) {
    if (words[i] != kUntouched) return false;
  }
  return true;
}
#else
void make_zone(uint32_t*) {}
bool is_zone(const uint32_t*) {
  return true;
}
#endif

}  // namespace

SharedMemory::SharedMemory() {
  void* const memory = mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory");
  memory_ = static_cast<char*>(memory);
}

SharedMemory::~SharedMemory() {
  ASAN_UNPOISON_MEMORY_REGION(memory_, kMemory);
  munmap(memory_, kMemory);
}

void SharedMemory::renew(size_t most) {
  most_ = most;
  if (count_ > 0 && sanitizer::kThreads) {
    const sanitizer::Hidden hidden;
    CHECK(mmap(memory_, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory_,
          "no memory");
  }
  ASAN_POISON_MEMORY_REGION(memory_, kMemory);
  make_zone(reinterpret_cast<uint32_t*>(memory_));
  bytes_ = of_arrays_ = 0;
  count_ = 0;
}

const SharedArray& SharedMemory::array(const char* name, const void* key, size_t bytes,
                                       const std::source_location& place) {
  for (int i = 0; i < count_; ++i) {
    if (arrays_[i].key == key) return arrays_[i];
  }
  const size_t taken = (bytes + 15) / 16 * 16;
  const bool of_launch = key == nullptr;
  const bool many = count_ == kArrays || (!of_launch && of_arrays_ + taken > kBytes);
  if (many || bytes_ + taken > most_) {
    return refused_ = {key, name, nullptr, bytes / 4, many ? kBytes : most_, place};
  }
  char* const address = memory_ + kZone + bytes_ + static_cast<size_t>(count_) * kZone;
  SharedArray& array = arrays_[count_++];
  array = {key, name, reinterpret_cast<uint32_t*>(address), (bytes + 3) / 4, 0, place};
  bytes_ += taken;
  if (!of_launch) of_arrays_ += taken;
  ASAN_UNPOISON_MEMORY_REGION(address, taken);
  fill(array.words, array.count, kUnwritten);
  ASAN_POISON_MEMORY_REGION(address + bytes, taken - bytes);
  make_zone(array.words + array.count);
  return array;
}

const SharedArray* SharedMemory::overrun() const {
  if (count_ > 0 && !is_zone(reinterpret_cast<const uint32_t*>(memory_))) return &arrays_[0];
  for (int i = 0; i < count_; ++i) {
    if (!is_zone(arrays_[i].words + arrays_[i].count)) return &arrays_[i];
  }
  return nullptr;
}

}  // namespace shiftron::machine
