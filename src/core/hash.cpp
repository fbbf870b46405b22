// XXH3 from the xxHash library.
#include "core/hash.h"

#ifdef SHIFTRON_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // the same functions, in the vectors that the processor has
#else
#include <xxhash.h>
#endif

#include "core/check.h"

namespace shiftron {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

#ifdef SHIFTRON_XXHASH_DISPATCH
[[gnu::target("avx")]] void clear_upper_halves() {
  __builtin_ia32_vzeroupper();
}
#endif

// The library leaves the upper halves of vector registers in use (xxHash 0.8.1). Until they are cleared, code without
// AVX on Intel processors waits for the previous result in each register: initializing weights took 6 times as long
// after a hash.
struct ClearVectorsAfterHash {
  ~ClearVectorsAfterHash() {
#ifdef SHIFTRON_XXHASH_DISPATCH
    if (__builtin_cpu_supports("avx")) clear_upper_halves();
#endif
  }
};

}  // namespace

// Both widths read the same state, which the library resets the same way for either.
struct HashStream::State {
  std::unique_ptr<XXH3_state_t, FreeState> state{XXH3_createState()};
};

uint64_t xxh3_64(const void* data, size_t bytes, uint64_t seed) {
  const ClearVectorsAfterHash clear;
  return XXH3_64bits_withSeed(data, bytes, seed);
}

Hash128 xxh3_128(const void* data, size_t bytes) {
  const ClearVectorsAfterHash clear;
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

std::string to_hex(uint64_t hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 0; i < 16; ++i) text[15 - i] = kDigits[(hash >> (4 * i)) & 15];
  return text;
}

std::string to_hex(const Hash128& hash) {
  return to_hex(hash.high) + to_hex(hash.low);
}

HashStream::HashStream() : state_(std::make_unique<State>()) {
  CHECK(state_->state != nullptr, "no memory for a hash");
  XXH3_128bits_reset(state_->state.get());
}
HashStream::~HashStream() = default;
HashStream::HashStream(HashStream&&) noexcept = default;
HashStream& HashStream::operator=(HashStream&&) noexcept = default;

void HashStream::update(const void* data, size_t bytes) {
  const ClearVectorsAfterHash clear;
  XXH3_128bits_update(state_->state.get(), data, bytes);
}

uint64_t HashStream::digest_64() const {
  const ClearVectorsAfterHash clear;
  return XXH3_64bits_digest(state_->state.get());
}

Hash128 HashStream::digest_128() const {
  const ClearVectorsAfterHash clear;
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->state.get());
  return {hash.low64, hash.high64};
}

}  // namespace shiftron
