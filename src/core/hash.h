// Hashes of bytes: XXH3 with 64 and 128 bits, at once and in pieces, and their hexadecimal text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace shiftron {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

uint64_t xxh3_64(const void* data, size_t bytes, uint64_t seed = 0);
Hash128 xxh3_128(const void* data, size_t bytes);
inline uint64_t xxh3_64(std::string_view text, uint64_t seed = 0) {
  return xxh3_64(text.data(), text.size(), seed);
}
inline Hash128 xxh3_128(std::string_view text) {
  return xxh3_128(text.data(), text.size());
}

// Lower-case digits, most significant first, as `xxhsum` prints them: 16 and 32 characters.
std::string to_hex(uint64_t hash);
std::string to_hex(const Hash128& hash);

// A hash of bytes that arrive in pieces; equal to the hash of all bytes at once.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(HashStream&&) noexcept;
  HashStream& operator=(HashStream&&) noexcept;
  void update(const void* data, size_t bytes);
  // Of everything since the start; update() may follow.
  uint64_t digest_64() const;
  Hash128 digest_128() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shiftron
