// The recurrence and seeding are the published ones; the conversion of words to numbers and samples is CPython's.
#include "evaluate/tasks/python_random.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "core/check.h"

namespace shiftron::python {
namespace {
constexpr size_t kWords = 624;
constexpr size_t kMiddle = 397;
}  // namespace

Random::Random(uint64_t seed) {
  std::vector<uint32_t> key{static_cast<uint32_t>(seed)};
  if (seed >> 32) key.push_back(static_cast<uint32_t>(seed >> 32));
  seed_by_number(19650218);
  size_t i = 1, j = 0;
  const auto mixed = [&](uint32_t factor) { return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor); };
  const auto advance = [&] {
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (size_t k = kWords; k > 0; --k) {
    state_[i] = mixed(1664525) + key[j] + static_cast<uint32_t>(j);
    advance();
    j = (j + 1) % key.size();
  }
  for (size_t k = kWords - 1; k > 0; --k) {
    state_[i] = mixed(1566083941) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000;
}

void Random::seed_by_number(uint32_t seed) {
  state_[0] = seed;
  for (size_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253 * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
  at_ = kWords;
}

void Random::renew() {
  const auto renewed = [&](size_t i, size_t next, size_t middle) {
    const uint32_t joined = (state_[i] & 0x80000000) | (state_[next] & 0x7FFFFFFF);
    state_[i] = state_[middle] ^ (joined >> 1) ^ (joined & 1 ? 0x9908B0DF : 0);
  };
  for (size_t i = 0; i < kWords - kMiddle; ++i) renewed(i, i + 1, i + kMiddle);
  for (size_t i = kWords - kMiddle; i + 1 < kWords; ++i) renewed(i, i + 1, i + kMiddle - kWords);
  renewed(kWords - 1, 0, kMiddle - 1);
  at_ = 0;
}

uint32_t Random::bits(int count) {
  return next_word() >> (32 - count);
}

uint32_t Random::below(uint32_t limit) {
  const int count = std::bit_width(limit);
  uint32_t drawn = bits(count);
  while (drawn >= limit) drawn = bits(count);
  return drawn;
}

std::vector<int64_t> Random::sample(int64_t population, int64_t count) {
  CHECK(count >= 0 && count <= population, "a sample of ", count, " out of ", population);
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  // As CPython does: a pool if that is smaller than a set of the drawn numbers.
  int64_t set_size = 21;
  if (count > 5)
    set_size +=
        int64_t{1} << (2 * static_cast<int>(std::ceil(std::log(3.0 * static_cast<double>(count)) / std::log(4.0))));
  if (population <= set_size) {
    std::vector<int64_t> pool(static_cast<size_t>(population));
    std::iota(pool.begin(), pool.end(), 0);
    for (size_t i = 0; i < drawn.size(); ++i) {
      const uint32_t at = below(static_cast<uint32_t>(pool.size()));
      drawn[i] = pool[at];
      pool[at] = pool.back();
      pool.pop_back();
    }
    return drawn;
  }
  std::unordered_set<int64_t> taken;
  for (int64_t& number : drawn) {
    do number = below(static_cast<uint32_t>(population));
    while (!taken.insert(number).second);
  }
  return drawn;
}

}  // namespace shiftron::python
