// The shared memory of a block on the host: arrays with zones between them. Only included by files that are not
// instrumented.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace shiftron::machine {

struct SharedArray {
  const void* key = nullptr;
  const char* name = nullptr;
  uint32_t* words = nullptr;
  size_t count = 0;  // of words
  size_t limit = 0;  // where it has no room: of bytes, the one that it exceeds
  std::source_location place;
};

class SharedMemory {
 public:
  static constexpr size_t kBytes = size_t{48} << 10;       // of a block's arrays
  static constexpr size_t kMostBytes = size_t{227} << 10;  // of these and of what a launch asks for

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // For the next block, of so many bytes in all: ThreadSanitizer forgets who touched it, AddressSanitizer closes it.
  void renew(size_t most);
  // The array of this key, or what the launch asked for where that is null, full of NaN when the block first asks; its
  // words are null where it has no room.
  const SharedArray& array(const char* name, const void* key, size_t bytes, const std::source_location& place);
  const SharedArray* overrun() const;  // what somebody wrote beyond, where AddressSanitizer does not see it

 private:
  static constexpr int kArrays = 32;
  char* memory_ = nullptr;
  size_t bytes_ = 0, of_arrays_ = 0, most_ = kMostBytes;
  int count_ = 0;
  SharedArray arrays_[kArrays];
  SharedArray refused_;
};

}  // namespace shiftron::machine
